"""What somebody meets who makes mistakes, against a real Swift."""

from __future__ import annotations

import os
import signal

import pytest

from tests.functional.commands import hapi, start
from tests.functional.support import take_interrupts, wait_until
from tests.functional.training import client_of, digit_folders, put

DATA = "swift://surprises/train"
MODEL = ["--model", "resnet18", "--weights", "random:7", "--threads", "1"]
TRANSFORM = ["--transform", "resize=32x32, mean=(0.5), std=(0.25)"]
TRAIN = ["train", DATA, *MODEL, *TRANSFORM, "--freeze-at", "layer2", "--batch-size", "12"]


@pytest.fixture(scope="module")
def store(cluster, tmp_path_factory):
    client = client_of(cluster)
    put(client, digit_folders(tmp_path_factory.mktemp("digits"), 0, 24), DATA, shard_samples=4)
    return client


@pytest.fixture
def run(cluster, store, monkeypatch, capsys):
    """``run(*argv)``: exit code and what was said on stderr."""

    def call(*argv) -> tuple[int, str]:
        code = hapi(cluster, monkeypatch, *argv)
        return code, capsys.readouterr().err

    return call


def test_a_run_that_keeps_nothing_says_so(run):
    code, said = run(*TRAIN, "--epochs", "1", "--split", "raw")
    assert code == 0
    assert said.splitlines()[0] == "the model will not be kept: there is no --out"


def test_what_there_is_to_resume(run, tmp_path):
    argv = [*TRAIN, "--epochs", "1", "--out", tmp_path / "run", "--resume"]
    # A module is as good a split as a cut.
    code, said = run(*argv, "--split", "layer1")
    assert code == 0 and f"{tmp_path}/run holds no checkpoint yet" in said
    assert "split layer1_1_relu_1: cut" in said and "will not be kept" not in said
    code, said = run(*argv, "--split", "raw")
    assert code == 0 and "its epoch is done: nothing is left to do" in said
    assert "resumed after" not in said
    code, said = run(*argv, "--split", "fc")
    assert code == 2 and "the module ends at 'fc', behind the freeze point" in said
    code, said = run(*argv, "--batch-size", "6")
    assert code == 1 and "of a run with another --batch-size: 12, not 6" in said
    os.truncate(tmp_path / "run" / "checkpoint.safetensors", 100)
    code, said = run(*argv, "--split", "raw")
    assert code == 1 and "checkpoint.safetensors: is damaged or cut short" in said


def test_two_runs_in_one_directory(cluster, run, tmp_path):
    out = tmp_path / "run"
    first = start(cluster, *TRAIN, "--epochs", "1000", "--split", "raw", "--out", out)
    try:
        wait_until(lambda: (out / "log.jsonl").exists(), "the first run's beginning")
        code, said = run(*TRAIN, "--out", out, "--overwrite")
        assert code == 2 and f"--out='{out}': another run is writing there" in said
    finally:
        first.kill()
        first.communicate()
    assert run(*TRAIN, "--epochs", "1", "--split", "raw", "--out", out, "--overwrite")[0] == 0


def test_a_task_that_fails_does_so_in_one_line(run, tmp_path):
    task = tmp_path / "task.py"
    task.write_text(
        "from hapi_compute import TrainingTask\n"
        "class Sum(TrainingTask):\n"
        "    def losses(self, outputs, labels): return outputs.sum()\n"
        "class Bug(TrainingTask):\n"
        "    def losses(self, outputs, labels): return 1 / 0\n"
    )
    for name, why in (
        ("Sum", "task.py: losses() returned [], want one loss for each sample, [12]"),
        ("Bug", "task.py:5: losses() failed: ZeroDivisionError: division by zero"),
    ):
        code, said = run(*TRAIN, "--split", "raw", "--task", f"{task}:{name}")
        assert code == 1 and why in said and "Traceback" not in said
    code, said = run(*TRAIN, "--split", "raw", "--task", f"{task}:Bug", "-v")
    assert code == 1 and "Traceback" in said


@pytest.mark.parametrize("kind", ["link", "null"])
def test_reports_and_predictions_leave_what_they_are_written_to(run, tmp_path, kind):
    assert run(*TRAIN, "--epochs", "1", "--split", "raw", "--out", tmp_path / "run")[0] == 0
    target = "/dev/null" if kind == "null" else "there"
    for name in ("a.json", "b.csv", "c.npy"):
        (tmp_path / name).symlink_to(target + ("" if kind == "null" else f"-{name}"))
    links = sorted(path for path in tmp_path.iterdir() if path.is_symlink())
    json, csv, npy = links
    code, _ = run("predict", DATA, "--run", tmp_path / "run", "-o", csv, "--json", json)
    assert code == 0
    extract = ["extract", DATA, *MODEL, *TRANSFORM, "--cut", "layer2", "--out", npy]
    code, said = run(*extract)
    assert all(path.is_symlink() for path in links)
    if kind == "null":
        assert code == 2 and "is no regular file" in said
    else:
        assert code == 0
        assert (tmp_path / "there-b.csv").read_text().count("\n") == 25
        assert "24 samples" not in said and (tmp_path / "c.json").exists()


def test_an_interrupted_extraction_keeps_what_it_has(cluster, store, run, tmp_path):
    argv = ["extract", DATA, *MODEL, *TRANSFORM, "--cut", "layer2", "--concurrency", "1",
            "--prefetch", "1", "--out", tmp_path / "f.npy"]  # fmt: skip
    journal = tmp_path / "f.npy.journal"
    process = start(cluster, *argv, preexec_fn=take_interrupts)

    def some() -> bool:
        assert process.poll() is None, process.communicate()
        return journal.exists() and journal.read_bytes().count(b"\n") > 1

    wait_until(some, "a shard to be written")
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 130
    assert "of 6 shards kept; the same command goes on there" in said
    assert run(*argv)[0] == 0
