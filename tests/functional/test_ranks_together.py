"""Several ranks choose one split, move together, and report what all of them did."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from tests.functional import watched_rank
from tests.functional.training import RTOL, client_of, config, digit_folders, put, run

URL = "swift://together/train"
ROOT = Path(watched_rank.__file__).parents[2]
OPTIONS = {"freeze_at": "avgpool", "epochs": 8, "lr": 1e-4, "split": "auto"}


@pytest.fixture(scope="module")
def store(cluster, tmp_path_factory):
    client = client_of(cluster)
    put(client, digit_folders(tmp_path_factory.mktemp("digits"), 200, 46), URL, shard_samples=6)
    return client


@pytest.fixture(scope="module")
def losses(store):
    """Of one process, without a push-down."""
    return run(store, URL, **OPTIONS | {"split": "raw"}).step_losses


def asking(cluster, out: Path, options: dict | None = None, **ask) -> str:
    """The program's argument."""
    options = asdict(config(URL, **OPTIONS | (options or {})))
    options.pop("dataset")
    ask |= {
        "auth": [cluster.auth_url, cluster.user, cluster.key], "url": URL, "out": str(out),
        "options": options,
    }  # fmt: skip
    return json.dumps(ask)


def launch(cluster, out: Path, ranks: int = 2, options: dict | None = None, **ask):
    """(exit status, what was said, what every rank saw)."""
    found = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         f"--nproc-per-node={ranks}", "--module", "tests.functional.watched_rank",
         asking(cluster, out, options, **ask)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
        cwd=ROOT,
    )  # fmt: skip
    saw = [json.loads(path.read_text()) for path in sorted(out.glob("rank*.json"))]
    return found.returncode, found.stderr, saw


def test_one_profile_one_choice_and_sums_over_ranks(cluster, store, losses, tmp_path):
    status, said, saw = launch(cluster, tmp_path)
    assert status == 0, said[-3000:]
    assert [each["profiles"] for each in saw] == [1, 0]
    assert saw[0]["switches"][0] == saw[1]["switches"][0]
    reports = [each["report"] for each in saw]
    assert reports[0] == reports[1]
    report = reports[0]
    np.testing.assert_allclose(report["step_losses"], losses, rtol=RTOL)
    assert report["plan"]["profile"]["samples"] > 0 and report["plan"]["candidates"]
    counts = [each["counts"] for each in saw]
    for name in ("requests", "retries", "bytes_received", "bytes_sent", "logins"):
        assert report[name] == sum(each[name] for each in counts), name
    assert report["logins"] == 2 and report["retries"] == 0
    assert counts[0]["requests"] > counts[1]["requests"] > 0  # The first lists and profiles.
    assert report["samples"] == 46 and report["timings"]["sync"] > 0
    # Every shard of every epoch has been read by one of them at least.
    assert report["requests"] > 8 * OPTIONS["epochs"]
    shards = sum(epoch["bytes_received"] for epoch in report["epochs"])
    assert 0 < shards <= report["bytes_received"]


@pytest.mark.slow
def test_fallbacks_and_the_storage_tiers_seconds_are_sums(cluster, store, losses, tmp_path):
    options = {"split": "add_4", "epochs": 2}
    status, said, saw = launch(cluster, tmp_path, refused=[1, 2], options=options)
    assert status == 0, said[-3000:]
    report = saw[0]["report"]
    assert report["fallbacks"] == 3 and report["timings"]["storage"]["infer"] > 0
    np.testing.assert_allclose(report["step_losses"], losses[:8], rtol=RTOL)


def test_all_ranks_move_together(cluster, store, losses, tmp_path):
    # The last batch of an epoch has one sample, and the second rank none.
    options = {"batch_size": 5, "epochs": 8}
    status, said, saw = launch(cluster, tmp_path, 2, options, moves=True)
    assert status == 0, said[-3000:]
    switches = [each["switches"] for each in saw]
    assert len(switches[0]) > 3 and switches[0] == switches[1]
    assert len(set(switches[0])) > 2
    history = saw[0]["report"]["plan"]["history"]
    assert [move["split"] for move in history] == switches[0][1:]
    alone = run(store, URL, **OPTIONS | options | {"split": "raw"})
    np.testing.assert_allclose(saw[0]["report"]["step_losses"], alone.step_losses, rtol=RTOL)


@pytest.mark.slow
def test_mixed_precision_on_two_ranks(cluster, store, tmp_path):
    options = {"precision": "bfloat16", "split": "add_4", "epochs": 3}
    status, said, saw = launch(cluster, tmp_path, options=options)
    assert status == 0, said[-3000:]
    assert saw[1]["report"]["precision"] == "bfloat16"
    alone = run(store, URL, **OPTIONS | options)
    np.testing.assert_allclose(saw[0]["report"]["step_losses"], alone.step_losses, rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_ends_the_others(cluster, store, tmp_path, rank):
    """Without a launcher that would end them."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.functional.watched_rank",
             asking(cluster, tmp_path, fails=[rank, 5])],
            env={**os.environ, **meeting, "OMP_NUM_THREADS": "1", "RANK": str(each)},
            stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )
        for each in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=200)[1] for process in processes]
    assert [process.returncode for process in processes] == [1, 1]
    assert "OSError: the disk is gone" in said[rank]
    assert "OtherRankFailed: another rank has ended" in said[1 - rank]
