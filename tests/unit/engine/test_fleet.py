"""Several workers on one socket: real processes."""

from __future__ import annotations

import os
import signal

import pytest

from swift_hapi.engine import fleet
from swift_hapi.engine.placement import own_cpus
from tests.unit.engine.client import ask
from tests.unit.engine.conftest import EngineProcess, feature_headers, post, shard


@pytest.fixture(scope="module")
def pair(tmp_path_factory, models):
    directory = tmp_path_factory.mktemp("pair")
    process = EngineProcess(directory, workers=2, nice=1)
    (directory / "models" / "net1.safetensors").write_bytes(models[0].path.read_bytes())
    try:
        yield process.start()
    finally:
        process.stop()


def own_status(engine, worker: int) -> dict | None:
    """What a worker says on its own socket; None while it is not there."""
    path = engine.socket.with_name(f"{engine.socket.name}.{worker}")
    try:
        return ask(path, "GET", "/v1/status").json()
    except OSError:
        return None


def wait_for_both(engine) -> list[dict]:
    engine.wait_until(
        lambda: all((s := own_status(engine, n)) and s["ready"] for n in (0, 1)), 120
    )
    return [own_status(engine, n) for n in (0, 1)]


def test_both_serve_and_one_that_dies_comes_back(pair, models):
    statuses = wait_for_both(pair)
    assert [status["worker"] for status in statuses] == [0, 1]
    pids = [status["pid"] for status in statuses]
    assert len({*pids, pair.process.pid}) == 3
    nicer = min(19, os.getpriority(os.PRIO_PROCESS, pair.process.pid) + 1)
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in pids] == [nicer, nicer]
    # A share of memory is divided.
    assert statuses[0]["memory"]["budget_bytes"] == statuses[1]["memory"]["budget_bytes"]

    os.kill(pids[0], signal.SIGKILL)
    # Nobody has to wait for it: the other one takes what comes.
    assert post(pair, shard(2), feature_headers(models[0].digest)).status == 200
    pair.wait_until(
        lambda: (s := own_status(pair, 0)) and s["pid"] != pids[0] and s["ready"], 120
    )
    assert own_status(pair, 1)["pid"] == pids[1]


def test_a_model_that_one_has_received_the_other_finds(pair, models):
    wait_for_both(pair)
    data = models[1].path.read_bytes()
    own = pair.socket.with_name(f"{pair.socket.name}.0")
    other = pair.socket.with_name(f"{pair.socket.name}.1")
    assert ask(other, "HEAD", f"/v1/models/{models[1].hex}").status == 404
    assert ask(own, "PUT", f"/v1/models/{models[1].hex}", data).status == 201
    assert ask(other, "HEAD", f"/v1/models/{models[1].hex}").status == 200


def test_hangup_reaches_all_and_the_end_is_orderly(pair, models):
    statuses = wait_for_both(pair)
    (pair.directory / "models" / "late.safetensors").write_bytes(models[1].path.read_bytes())
    pair.process.send_signal(signal.SIGHUP)
    for worker in (0, 1):
        pair.wait_until(lambda worker=worker: "late" in own_status(pair, worker)["models"]
                        ["operator"])  # fmt: skip
    pair.process.send_signal(signal.SIGTERM)
    assert pair.process.wait(60) == 0
    for status in statuses:
        with pytest.raises(ProcessLookupError):
            os.kill(status["pid"], 0)
    assert [path.name for path in pair.socket.parent.iterdir()] == ["engine.sock.lock"]


@pytest.mark.parametrize(
    "ids, workers, expected",
    [
        ((0, 1, 2, 3), 2, [{0, 1}, {2, 3}]),
        ((4, 5, 6), 2, [{4}, {5, 6}]),
        ((7,), 3, [{7}, {7}, {7}]),
        ((1, 2), 1, [{1, 2}]),
    ],
)
def test_cpus_of_each_worker(ids, workers, expected):
    assert [own_cpus(ids, worker, workers) for worker in range(workers)] == expected


def test_restarts_come_later_and_later():
    worker = fleet.Worker(0, ["/bin/false"], 0)
    waits, now = [], 100.0
    for _ in range(8):
        worker.start(now)
        worker.process.wait()
        worker.look_after(now)
        waits.append(worker.restart_at - now)
        worker.look_after(now)  # too early
        assert worker.process is None
        now = worker.restart_at
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]
    worker.start(now)
    worker.process.wait()
    worker.look_after(now + 100)
    assert worker.restart_at - (now + 100) == 0.5
