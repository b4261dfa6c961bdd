"""What a training run offers beside the losses, over a real Swift."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from hapi_compute import FeaturesOf, Reading, SwiftDataset
from hapi_compute.models import load_model
from hapi_compute.train import journal
from swift_hapi.graph.split import build_transfer
from swift_hapi.protocol.payload import read_metadata
from tests.functional.support import take_interrupts, wait_until
from tests.functional.training import AtStep, client_of, config, digit_folders, put, run

TRAIN, TEST = "swift://trainer/train", "swift://trainer/test"
DOCS = Path(__file__).parents[2] / "doc" / "source"


@pytest.fixture(scope="module")
def store(cluster, tmp_path_factory):
    root = tmp_path_factory.mktemp("digits")
    client = client_of(cluster)
    put(client, digit_folders(root / "train", 700, 60), TRAIN)
    put(client, digit_folders(root / "test", 100, 24), TEST)
    return client


def test_everything_a_run_leaves_behind(store, tmp_path):
    pytest.importorskip("tensorboard")
    report = run(
        store, TRAIN, split="raw", test=TEST, out=str(tmp_path), val_split=0.3, epochs=4,
        freeze_at="avgpool", optimizer="adamw", lr=0.003, schedule="cosine", warmup=2,
        label_smoothing=0.1, class_weights="balanced", accumulate=2, tensorboard=True,
    ).to_dict()  # fmt: skip
    accuracies = [epoch["val_accuracy"] for epoch in report["epochs"]]
    best = report["best_epoch"] - 1
    assert accuracies[best] == max(accuracies)
    assert all(e["top5"] >= e["accuracy"] and e["val_loss"] > 0 for e in report["epochs"])
    confusion = np.array(report["test"]["confusion"])
    assert confusion.sum() == 24 and confusion.trace() / 24 == report["test_accuracy"]
    assert report["test"]["top5"] >= report["test_accuracy"]

    log = [json.loads(line) for line in (tmp_path / journal.NAME).read_text().splitlines()]
    steps = [entry for entry in log if entry["event"] == "step"]
    assert [entry["loss"] for entry in steps] == report["step_losses"]
    assert steps[0]["lr"] == pytest.approx(0.0015) and steps[1]["lr"] == pytest.approx(0.003)
    assert [e["val_accuracy"] for e in log if e["event"] == "epoch"] == accuracies
    assert list((tmp_path / journal.EVENTS).iterdir())

    html = (tmp_path / "report.html").read_text()
    assert html.count("<svg") == 3 and f"{report['test_accuracy']:.4f}" in html
    # The best epoch's weights are in the best checkpoint and in the model.
    weights = safetensors.torch.load_file(tmp_path / "best.safetensors")
    model = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert torch.equal(weights["model/fc.weight"], model["fc.weight"])
    assert {"checkpoint.safetensors", "model.json"} <= {p.name for p in tmp_path.iterdir()}


def test_stopping_early_and_going_on_after_all(store, tmp_path):
    # So small a rate changes nothing: the first epoch stays the best.
    options = {"split": "raw", "out": str(tmp_path), "val_split": 0.3, "freeze_at": "avgpool"}
    options |= {"lr": 1e-12, "momentum": 0.0, "epochs": 9}
    first = run(store, TRAIN, patience=2, **options)
    again = run(store, TRAIN, patience=2, resume=True, **options)
    assert again.step_losses == first.step_losses and len(first.epochs) < 9
    more = run(store, TRAIN, patience=None, resume=True, **options | {"epochs": 6})
    assert len(more.epochs) == 6 and more.step_losses[: len(first.step_losses)] == (
        first.step_losses
    )


def test_accumulating_and_resuming_within_an_epoch(store, tmp_path):
    class Stop(Exception):
        pass

    def stop():
        raise Stop

    options = {"split": "raw", "accumulate": 2, "checkpoint_seconds": 0, "drop_last": True}
    options |= {"batch_size": 7}  # 8 batches of 7 are four steps of the optimiser.
    whole = run(store, TRAIN, out=str(tmp_path / "whole"), **options)
    assert len(whole.step_losses) == 16
    with pytest.raises(Stop):
        run(store, TRAIN, AtStep(12, stop), out=str(tmp_path / "cut"), **options)
    found = run(store, TRAIN, out=str(tmp_path / "cut"), resume=True, **options)
    np.testing.assert_allclose(found.step_losses, whole.step_losses, rtol=1e-5)


def test_a_head_and_a_loss_of_ones_own(store, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        textwrap.dedent(
            """
            from torch import nn
            from torch.nn.functional import multi_margin_loss

            from hapi_compute import TrainingTask

            class Own(TrainingTask):
                def head(self, rest, features, classes):
                    return nn.Sequential(
                        nn.Flatten(), nn.Linear(features.numel(), 16), nn.ReLU(),
                        nn.Linear(16, classes),
                    )

                def losses(self, outputs, labels):
                    return multi_margin_loss(outputs, labels, reduction="none")

            def factory():
                return Own()

            def other():
                return 3
            """
        )
    )
    options = {"freeze_at": "avgpool", "task": f"{path}:factory", "epochs": 3, "lr": 0.01}
    raw = run(store, TRAIN, split="raw", out=str(tmp_path / "out"), **options)
    split = run(store, TRAIN, split="add_4", **options)
    np.testing.assert_allclose(split.step_losses, raw.step_losses, rtol=1e-4)
    assert raw.epochs[-1].loss < raw.epochs[0].loss
    model = safetensors.torch.load_file(tmp_path / "out" / "model.safetensors")
    assert model["head.1.weight"].shape == (16, 512) and "conv1.weight" in model
    assert json.loads((tmp_path / "out" / "model.json").read_text())["head"] == "head."
    with pytest.raises(ValueError, match="made int, no TrainingTask"):
        run(store, TRAIN, split="raw", **options | {"task": f"{path}:other"})
    with pytest.raises(ValueError, match="FILE.py|file.py:factory"):
        run(store, TRAIN, split="raw", **options | {"task": "own"})


@pytest.mark.parametrize("ranks", [None, 2])
def test_the_loop_in_the_manual(cluster, store, tmp_path, ranks):
    """On the data that it names, with random weights instead of a download; by plain ``python``,
    and by ``torchrun``."""
    put(store, digit_folders(tmp_path / "digits", 0, 40), "swift://digits/train")
    program = DOCS / "examples" / "own_loop.py"
    lines = [line for line in program.read_text().splitlines() if line.strip()]
    body = [line for line in lines if not line.startswith(("import ", "from "))]
    assert len(body) <= 25
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [sys.executable, *(torchrun if ranks else []), str(program)],
        env={**os.environ, "ST_AUTH": cluster.auth_url, "ST_USER": cluster.user,
             "ST_KEY": cluster.key, "WEIGHTS": "random:1", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = [done.stdout.count(f"rank {rank}, epoch") for rank in range(3)]
    assert found == [3 if rank < (ranks or 1) else 0 for rank in range(3)]


def test_interrupted_and_resumed(cluster, store, tmp_path):
    """Ctrl-C: one line, the exit code that says so, and nothing lost but the last steps."""
    out = tmp_path / "out"
    wanted = config(TRAIN, freeze_at="avgpool", epochs=500, lr=1e-5)
    argv = ["train", TRAIN, "--split", "raw", "--out", str(out), "--checkpoint-seconds", "0"]
    for name in ("model", "weights", "freeze_at", "transform", "epochs", "batch_size", "window",
                 "threads", "decode_threads", "seed", "optimizer", "lr"):  # fmt: skip
        argv += [f"--{name.replace('_', '-')}", str(getattr(wanted, name))]
    process = subprocess.Popen(
        [sys.executable, "-m", "hapi_compute.cli.main", *argv],
        env={**os.environ, "ST_AUTH": cluster.auth_url, "ST_USER": cluster.user,
             "ST_KEY": cluster.key},
        stderr=subprocess.PIPE, text=True, preexec_fn=take_interrupts,
    )  # fmt: skip
    log = out / journal.NAME
    wait_until(lambda: log.exists() and log.read_text().count('"event": "step"') > 8, "some steps")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "hapi: interrupted" in errors
    assert "Traceback" not in errors
    state = read_metadata((out / "checkpoint.safetensors").read_bytes())["state"]
    done = len(state["step_losses"])
    epochs = done // 5 + 1
    options = {"split": "raw", "freeze_at": "avgpool", "lr": 1e-5, "epochs": epochs}
    found = run(store, TRAIN, out=str(out), resume=True, **options)
    whole = run(store, TRAIN, **options)
    assert done > 5
    np.testing.assert_allclose(found.step_losses, whole.step_losses, rtol=1e-5)


@pytest.mark.parametrize("features", [False, True])
def test_prefetch_is_bounded_by_bytes(store, features):
    """A consumer that takes one batch: what is read is the window, what may be read ahead of it,
    and a shard that is let through because nothing else is waiting."""
    shard = 10 * 64 * 32 * 32 * 4 if features else 40_000
    options = {}
    if features:
        module = load_model("resnet18", "random:5").module
        extractor, _ = build_transfer(module, "maxpool", 10, 0, (3, 128, 128))
        options["features"] = FeaturesOf(extractor, required=True)
    data = SwiftDataset(
        TRAIN, store, batch_size=2, transform="resize=128x128", window=1, **options,
        reading=Reading(concurrency=3, prefetch=100, prefetch_bytes=2 * shard, ahead=1),
    )  # fmt: skip
    before = store.counters.snapshot()
    batches = iter(data)
    next(batches)
    quiet = Quiet(store)
    wait_until(quiet, "nothing to be read any more")
    received = (store.counters.snapshot() - before).bytes_received
    assert shard * 0.5 < received <= 3.2 * shard + 10_000
    batches.close()


class Quiet:
    """True once a second has brought nothing."""

    def __init__(self, store):
        self._store = store
        self._seen = (0, self._store.occupancy.now().at)

    def __call__(self) -> bool:
        now = self._store.occupancy.now().at
        received = self._store.counters.snapshot().bytes_received
        if received != self._seen[0]:
            self._seen = (received, now)
        return now - self._seen[1] > 1.0


@pytest.mark.slow
def test_memory_stays_flat_over_epochs(cluster, store):
    program = textwrap.dedent(
        f"""
        from tests.functional.training import config
        from hapi_compute import Credentials, SwiftClient, train
        from hapi_compute.train.progress import Progress

        class Resident(Progress):
            def epoch_ends(self, epoch, summary):
                with open("/proc/self/status") as status:
                    kb = next(l.split()[1] for l in status if l.startswith("VmRSS"))
                print(kb, flush=True)

        store = SwiftClient(Credentials({cluster.auth_url!r}, {cluster.user!r}, {cluster.key!r}))
        for split in ("raw", "add_2"):
            train.run(
                config(
                    {TRAIN!r}, epochs=10, split=split, freeze_at="avgpool",
                    transform="resize=128x128, mean=(0.5), std=(0.25)",
                ),
                store, Resident(),
            )
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=DOCS.parents[1], capture_output=True, text=True,
        timeout=280, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    resident = [int(line) / 1024 for line in done.stdout.split()]
    print(f"MiB at the ends of epochs: {[round(each) for each in resident]}")
    # The first epochs fill what is kept for reuse. Five more bring 60 samples each, of 128x128
    # decoded pixels or of as many numbers as the cut has: what is kept of them would show.
    for run_, sample in ((resident[:10], 3 * 128 * 128 * 4), (resident[10:], 64 * 32 * 32 * 4)):
        assert run_[9] - run_[4] < 0.4 * 5 * 60 * sample / 2**20, run_
