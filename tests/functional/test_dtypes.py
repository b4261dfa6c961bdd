"""Features that travel narrower than they are: what is lost, and what is not."""

from __future__ import annotations

import numpy as np
import pytest

from hapi_compute.data import readers
from hapi_compute.plan.choice import Chooser, Decision
from hapi_compute.train import pilot, planning
from hapi_compute.train.errors import CheckpointMismatch
from swift_hapi.protocol.errors import EngineBusy
from tests.functional.commands import report_of
from tests.functional.training import assert_same_losses, client_of, digit_folders, put, run

TRAIN = "swift://narrow/train"
#: what a loss may differ by, relative, from that with float32 features
ROUNDING = {"float16": 5e-3, "int8": 5e-2}


@pytest.fixture(scope="module")
def store(cluster, tmp_path_factory):
    client = client_of(cluster)
    put(client, digit_folders(tmp_path_factory.mktemp("digits"), 0, 48), TRAIN)
    return client


@pytest.fixture(scope="module")
def reference(store):
    return run(store, TRAIN, split="raw", freeze_at="avgpool")


def received(report) -> int:
    return sum(epoch.bytes_received for epoch in report.epochs)


def test_decoded_images_travel_as_pixels_and_nothing_is_lost(store, reference):
    report = run(store, TRAIN, split="input", freeze_at="avgpool", require_pushdown=True)
    assert report.step_losses == reference.step_losses
    pixels = 2 * 48 * 3 * 64 * 64
    assert pixels <= received(report) < 1.2 * pixels


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_narrow_features(store, reference, dtype):
    options = {"split": "add_4", "freeze_at": "avgpool", "require_pushdown": True}
    wide = run(store, TRAIN, **options)
    narrow = run(store, TRAIN, dtype=dtype, **options)
    assert_same_losses(wide, reference)
    assert narrow.step_losses == pytest.approx(wide.step_losses, rel=ROUNDING[dtype])
    assert narrow.step_losses != wide.step_losses
    # Half, or a quarter and eight bytes for each channel of 8 x 8.
    assert received(narrow) < {"float16": 0.6, "int8": 0.4}[dtype] * received(wide)
    # Which samples run together, and how bytes are coded, changes nothing about that.
    again = run(store, TRAIN, dtype=dtype, **options, micro_batch=3, encoding="zstd")
    assert_same_losses(again, narrow)


def test_what_falls_back_is_rounded_as_in_the_store(store, monkeypatch):
    options = {"split": "add_4", "freeze_at": "avgpool", "dtype": "int8"}
    whole = run(store, TRAIN, **options)
    real, calls = readers.get_features, []

    def every_second(*args, **kwargs):
        calls.append(args)
        if len(calls) % 2:
            raise EngineBusy("no")
        return real(*args, **kwargs)

    monkeypatch.setattr(readers, "get_features", every_second)
    broken = run(store, TRAIN, concurrency=1, **options)
    assert broken.fallbacks >= 4 and whole.fallbacks == 0
    assert_same_losses(broken, whole)


class Wanderer(Chooser):
    """Goes from one narrow candidate to the next."""

    def decide(self):
        names = [name for name in self.demands if "int8" in name]
        at = names.index(self.current) if self.current in names else -1
        self.current = names[(at + 1) % len(names)]
        return Decision(self.current, None, "wanders")


def test_a_planned_run_sends_what_was_allowed(store, monkeypatch):
    monkeypatch.setattr(planning, "Chooser", Wanderer)
    for name, least in (("_BATCHES", 1), ("_SHARDS", 0), ("_SECONDS", 0)):
        monkeypatch.setattr(pilot, name, least)
    report = run(
        store, TRAIN, split="auto", dtype="int8", encoding="zstd", freeze_at="avgpool", epochs=4,
        batch_size=6, window=1, prefetch=1, concurrency=1,
    )  # fmt: skip
    names = set(report.plan.estimates)
    assert {"raw", "input+zstd", "add_4+int8+zstd"} <= names
    assert not any("float16" in name or "uint8" in name for name in names)
    assert any("int8" in move.split for move in report.plan.history)


def test_resuming_with_another_dtype_is_refused(store, tmp_path):
    options = {"freeze_at": "avgpool", "split": "add_4", "out": str(tmp_path)}
    run(store, TRAIN, dtype="float16", **options, epochs=1)
    with pytest.raises(CheckpointMismatch, match="another dtype: .float16., not .int8."):
        run(store, TRAIN, dtype="int8", **options, epochs=2, resume=True)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_extract(cluster, store, tmp_path, monkeypatch, dtype):
    out = tmp_path / "features.npy"
    argv = ["extract", TRAIN, "--model", "resnet18", "--weights", "random:7", "--cut", "add_4"]
    argv += ["--transform", "resize=64x64, mean=(0.5), std=(0.25)", "--out", str(out)]
    report_of(cluster, monkeypatch, tmp_path, *argv, "--dtype", dtype, "--require-pushdown")
    found = np.load(out)
    other = tmp_path / "wide.npy"
    report_of(cluster, monkeypatch, tmp_path, *argv[:-1], str(other), "--require-pushdown")
    wide = np.load(other)
    assert found.dtype == np.float32 and found.shape == wide.shape == (48, 256, 4, 4)
    error = np.abs(found - wide).max() / np.abs(wide).max()
    if dtype == "float32":
        assert error <= 1e-5
    else:
        assert 0 < error <= {"float16": 1e-3, "int8": 5e-3}[dtype]
