"""``hapi train`` under ``torchrun``: the losses of one process, whatever the number of ranks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.functional.support import processes_naming, wait_until
from tests.functional.training import RTOL, client_of, config, digit_folders, put

TRAIN, TEST = "swift://ranks/train", "swift://ranks/test"
OPTIONS = ("model", "weights", "freeze_at", "transform", "epochs", "batch_size", "optimizer", "lr",
           "window", "micro_batch", "threads", "decode_threads", "seed")  # fmt: skip


@pytest.fixture(scope="module")
def store(cluster, tmp_path_factory):
    root = tmp_path_factory.mktemp("digits")
    client = client_of(cluster)
    put(client, digit_folders(root / "train", 400, 48), TRAIN)
    put(client, digit_folders(root / "test", 500, 24), TEST)
    return client


def environment(cluster) -> dict[str, str]:
    names = {"ST_AUTH": cluster.auth_url, "ST_USER": cluster.user, "ST_KEY": cluster.key}
    return {**os.environ, **names, "OMP_NUM_THREADS": "1"}


def start(
    cluster, ranks: int, out: Path, *argv: str, dataset: str = TRAIN, **options
) -> subprocess.Popen:
    """One run on ``ranks`` processes of this machine."""
    command = ["--module", "hapi_compute.cli.main", "train", dataset, "--out", str(out)]
    command += ["--json", str(out / "report.json"), "--test", TEST, *argv]
    # Layers with batch statistics would see other batches on every rank: train the last layer.
    wanted = config(TRAIN, **{"freeze_at": "avgpool"} | options)
    for name in OPTIONS:
        command += [f"--{name.replace('_', '-')}", str(getattr(wanted, name))]
    launcher = ["--standalone", f"--nproc-per-node={ranks}"]
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *launcher, *command],
        env=environment(cluster), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def launch(cluster, ranks: int, out: Path, *argv: str, **options) -> tuple[int, str]:
    """(exit status, what it said)."""
    process = start(cluster, ranks, out, *argv, **options)
    _, errors = process.communicate(timeout=240)
    return process.returncode, errors


def train(cluster, ranks: int, out: Path, *argv: str, **options) -> dict:
    out.mkdir(exist_ok=True)
    status, errors = launch(cluster, ranks, out, *argv, **options)
    assert status == 0, errors[-3000:]
    return json.loads((out / "report.json").read_text())


@pytest.fixture(scope="module")
def reference(cluster, store, tmp_path_factory):
    return train(cluster, 1, tmp_path_factory.mktemp("one"), "--split", "raw")


# Five shards: with two ranks and with four.
@pytest.mark.parametrize(
    ("ranks", "split"), [(2, "add_4"), pytest.param(4, "raw", marks=pytest.mark.slow)]
)
def test_ranks_give_the_losses_of_one(cluster, store, reference, tmp_path, ranks, split):
    report = train(cluster, ranks, tmp_path, "--split", split)
    assert report["ranks"] == ranks and len(report["step_losses"]) == 8
    np.testing.assert_allclose(report["step_losses"], reference["step_losses"], rtol=RTOL)
    assert report["test"]["confusion"] == reference["test"]["confusion"]
    assert report["epochs"][0]["accuracy"] == pytest.approx(reference["epochs"][0]["accuracy"])
    assert (report["fallbacks"], report["samples"]) == (0, 48)
    assert report["requests"] >= 10


@pytest.mark.slow
def test_resuming_on_another_number_of_ranks(cluster, store, reference, tmp_path):
    train(cluster, 2, tmp_path, "--split", "raw", epochs=1)
    report = train(cluster, 1, tmp_path, "--split", "raw", "--resume")
    np.testing.assert_allclose(report["step_losses"], reference["step_losses"], rtol=RTOL)
    assert report["test_accuracy"] == reference["test_accuracy"]
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [e["step"] for e in log if e["event"] == "step"] == list(range(1, 9))


@pytest.mark.slow
def test_two_ranks_converge_as_one_does(cluster, store, tmp_path):
    large, held_out = digit_folders(tmp_path / "large", 600, 200), "swift://ranks/held out"
    put(store, large, "swift://ranks/large")
    put(store, digit_folders(tmp_path / "held out", 900, 60), held_out)
    options = {"epochs": 8, "optimizer": "adamw", "lr": 0.003, "batch_size": 16}
    one, two = (
        train(
            cluster, ranks, tmp_path / str(ranks), "--split", "raw", "--test", held_out,
            dataset="swift://ranks/large", **options,
        )
        for ranks in (1, 2)
    )  # fmt: skip
    np.testing.assert_allclose(two["step_losses"], one["step_losses"], rtol=RTOL)
    assert two["test_accuracy"] == one["test_accuracy"] > 0.4  # Ten classes, random weights.
    assert two["epochs"][-1]["loss"] < 0.5 * two["epochs"][0]["loss"]


@pytest.mark.slow
def test_killed_on_two_ranks_resumed_on_three_and_on_one(cluster, store, tmp_path):
    options = {"epochs": 4, "lr": 1e-4}
    whole = train(cluster, 1, tmp_path / "whole", "--split", "add_4", **options)
    out = tmp_path / "killed"
    out.mkdir()
    argv = ("--split", "add_4", "--checkpoint-seconds", "0", "--resume")
    for ranks, steps in ((2, 5), (3, 9)):
        process = start(cluster, ranks, out, *argv, **options)
        wait_until(lambda: logged(out) >= steps or process.poll() is not None, "steps", 120)  # noqa: B023
        assert process.poll() is None, process.communicate()[1][-3000:]
        for pid in [process.pid, *processes_naming(str(out))]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
    assert logged(out) < 16
    found = train(cluster, 1, out, *argv, **options)
    np.testing.assert_allclose(found["step_losses"], whole["step_losses"], rtol=RTOL)
    assert logged(out) == 16 and found["test"]["confusion"] == whole["test"]["confusion"]


def logged(out: Path) -> int:
    path = out / "log.jsonl"
    return path.read_text().count('"event": "step"') if path.exists() else 0


@pytest.mark.slow
def test_choosing_the_split_and_layers_with_batch_statistics(cluster, store, tmp_path):
    report = train(cluster, 2, tmp_path, "--split", "auto", freeze_at="layer3", epochs=3)
    assert len(report["step_losses"]) == 12 and report["plan"]["candidates"]
    assert report["epochs"][2]["loss"] < report["epochs"][0]["loss"]


def test_an_error_ends_all_ranks_and_is_told_once(cluster, store, tmp_path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"of another run")
    status, errors = launch(cluster, 2, tmp_path, "--split", "raw", epochs=1)
    assert status != 0 and errors.count("holds a run already") == 1
