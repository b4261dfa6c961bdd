"""Killed at any step, and resumed with any numbers of ranks and workers: the same run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.functional import own_loop
from tests.functional.support import wait_until
from tests.functional.training import RTOL, client_of, digit_folders, put

URL = "swift://matrix/d"
EPOCHS, STEPS = 5, 8
MATRIX = [(ranks, workers) for ranks in (1, 2, 3) for workers in (0, 1, 2)]


@pytest.fixture(scope="module")
def store(cluster, tmp_path_factory):
    client = client_of(cluster)
    put(client, digit_folders(tmp_path_factory.mktemp("digits"), 300, 47), URL)
    return client


class Run:
    """One start of the program on so many ranks and workers."""

    def __init__(self, cluster, out: Path, ranks: int, workers: int, pause: float = 0.0):
        out.mkdir(exist_ok=True)
        meeting = out / "meeting"
        meeting.unlink(missing_ok=True)
        ask = {
            "auth": [cluster.auth_url, cluster.user, cluster.key], "url": URL, "out": str(out),
            "epochs": EPOCHS, "workers": workers, "pause": pause, "meeting": str(meeting),
        }  # fmt: skip
        self.out = out
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.functional.own_loop", json.dumps(ask)],
                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks)},
                cwd=Path(own_loop.__file__).parents[2], start_new_session=True,
                stderr=subprocess.PIPE, text=True,
            )
            for rank in range(ranks)
        ]  # fmt: skip

    @property
    def steps(self) -> int:
        path = self.out / "steps"
        return int(path.read_text() or 0) if path.exists() else 0

    def kill(self) -> None:
        """All of it, workers too, at once."""
        for process in self.processes:
            os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes:
            process.communicate()

    def finish(self) -> list:
        for process in self.processes:
            _, errors = process.communicate(timeout=200)
            assert process.returncode == 0, errors[-3000:]
        return consumed(self.out)

    def alive(self) -> bool:
        return all(process.poll() is None for process in self.processes)


def consumed(out: Path) -> list:
    return torch.load(out / "saved.pt", weights_only=True)["consumed"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_and_resumed_is_the_uninterrupted_run(cluster, store, tmp_path, seed):
    reference = Run(cluster, tmp_path / "whole", 1, 0).finish()
    assert len(reference) == EPOCHS * STEPS
    for epoch in range(EPOCHS):
        keys = [key for e, _, keys, _ in reference if e == epoch for key in keys]
        assert len(keys) == len(set(keys)) == 47

    draw = random.Random(seed)
    order = draw.sample(MATRIX, len(MATRIX))
    out, killed_at = tmp_path / "killed", []
    for ranks, workers in order:
        run = Run(cluster, out, ranks, workers, pause=0.1)
        until = run.steps + draw.randint(1, 4)
        wait_until(lambda: run.steps >= until or not run.alive(), f"step {until}", 120)  # noqa: B023
        assert run.alive(), run.processes[0].communicate()[1][-3000:]
        run.kill()
        killed_at.append(run.steps)
    assert len(consumed(out)) < len(reference), "it was over before the last kill"
    found = Run(cluster, out, *draw.choice(MATRIX)).finish()
    print(f"order {order}, killed at steps {killed_at}")
    assert [entry[:3] for entry in found] == [entry[:3] for entry in reference]
    losses = [[entry[3] for entry in entries] for entries in (found, reference)]
    np.testing.assert_allclose(*losses, rtol=RTOL)
