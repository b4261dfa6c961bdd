"""Training in bfloat16: the split changes nothing, and a run goes on as if never stopped."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hapi_compute.train.errors import CheckpointMismatch
from tests.functional.commands import hapi
from tests.functional.training import AtStep, client_of, config, digit_folders, put, run

URL = "swift://precision/train"
#: two convolutions and more are trained
OPTIONS = {"precision": "bfloat16", "lr": 5e-4, "val_split": 0.25}


@pytest.fixture(scope="module")
def store(cluster, tmp_path_factory):
    client = client_of(cluster)
    put(client, digit_folders(tmp_path_factory.mktemp("digits"), 700, 48), URL)
    return client


@pytest.fixture(scope="module")
def raw(store):
    return run(store, URL, **OPTIONS, split="raw", epochs=3)


def test_split_or_not_is_the_same_in_bfloat16(store, raw):
    split = run(store, URL, **OPTIONS, split="add_4", require_pushdown=True, epochs=3)
    assert len(split.step_losses) == len(raw.step_losses) > 6
    # Features differ in the last bit of float32, which now and then rounds another way.
    np.testing.assert_allclose(split.step_losses, raw.step_losses, rtol=2e-3)
    for one, other in zip(split.epochs, raw.epochs, strict=True):
        assert one.val_loss == pytest.approx(other.val_loss, rel=2e-3)
    report = split.to_dict()
    assert report["precision"] == "bfloat16" and "trained in bfloat16" in split.table()


def test_it_does_compute_in_bfloat16(store, raw):
    exact = run(store, URL, **OPTIONS | {"precision": "auto"}, split="raw", epochs=3)
    # This run is on a CPU.
    assert exact.to_dict()["precision"] == "float32"
    np.testing.assert_allclose(exact.step_losses, raw.step_losses, rtol=0.1)
    assert not np.allclose(exact.step_losses, raw.step_losses, rtol=1e-4)


def test_resumed_in_the_middle_of_an_epoch(store, raw, tmp_path):
    class Stopped(Exception):
        pass

    def stop():
        raise Stopped

    options = OPTIONS | {"out": str(tmp_path), "checkpoint_seconds": 0, "split": "raw"}
    with pytest.raises(Stopped):
        run(store, URL, AtStep(5, stop), **options, epochs=3)
    with pytest.raises(CheckpointMismatch, match="another precision: 'bfloat16', not 'float32'"):
        run(store, URL, **options | {"precision": "auto"}, resume=True, epochs=3)
    found = run(store, URL, **options, resume=True, epochs=3)
    assert found.step_losses == raw.step_losses
    product = json.loads((tmp_path / "model.json").read_text())
    assert product["options"]["precision"] == "bfloat16"


def test_float16_needs_a_gpu(cluster, store, monkeypatch, capsys):
    wanted = config(URL)
    argv = ["train", URL, "--model", wanted.model, "--weights", wanted.weights,
            "--freeze-at", wanted.freeze_at, "--device", "cpu"]  # fmt: skip
    assert hapi(cluster, monkeypatch, *argv, "--precision", "float16") == 2
    assert "want float32, bfloat16 or auto" in capsys.readouterr().err
