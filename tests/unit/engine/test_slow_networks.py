"""A network that takes minutes for one sample, on a real engine, beside others' requests."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.building import X, call, file
from tests.unit.engine.client import Expecting, ask
from tests.unit.engine.conftest import EngineProcess, feature_headers, jpeg, post, shard

_SIDE, _NODES = 2048, 4000


def slow_network() -> bytes:
    size = {"tuple": [_SIDE, _SIDE]}
    nodes = [call("up", "function", "functional.interpolate", X, size, None, "nearest")]
    for k in range(_NODES):
        nodes.append(call(f"s{k}", "method", "neg", {"ref": nodes[-1]["name"]}))
    nodes.append(call("end", "method", "amax", {"ref": nodes[-1]["name"]}, {"tuple": [2, 3]}))
    return file(nodes, "end")


@pytest.fixture(scope="module")
def beside(tmp_path_factory, models):
    directory = tmp_path_factory.mktemp("slow")
    process = EngineProcess(
        directory, batch_time="0.1", admission_timeout="60", max_sample_gflops=50_000
    )
    (directory / "models" / "net1.safetensors").write_bytes(models[0].path.read_bytes())
    (directory / "models" / "slow.safetensors").write_bytes(slow_network())
    try:
        yield process.start()
    finally:
        process.stop()


def test_others_are_answered_while_it_runs(beside, models):
    digest = f"sha256:{hashlib.sha256(slow_network()).hexdigest()}"
    slow = feature_headers(
        digest, "end", X_Hapi_Transform="resize=8x8", X_Hapi_Account="AUTH_slow"
    )
    assert ask(beside.socket, "HEAD", "/v1/features", headers=slow).status == 200
    body = shard(8)
    with (
        Expecting(beside.socket, "POST", "/v1/features", len(body), slow) as first,
        Expecting(beside.socket, "POST", "/v1/features", len(body), slow) as second,
        ThreadPoolExecutor(2) as threads,
    ):
        waiting = []
        for request in (first, second):
            request.wait_for_100()
            request.send(body)
            waiting.append(threads.submit(request._file.readline))
        beside.wait_until(lambda: any(lane["running"] for lane in beside.status()["lanes"]))
        for seed in range(3):
            answer = post(beside, jpeg(seed), feature_headers(models[0].digest))
            assert answer.status == 200
        assert not any(future.done() for future in waiting)
        # It began with one sample at a time: so many, and no more, are under way.
        (lane,) = [lane for lane in beside.status()["lanes"] if lane["cut"] == "end"]
        assert (lane["limit"], lane["running"]) == (1, 2)
        for request in (first, second):
            request._socket.shutdown(2)
    beside.wait_until(beside.idle)
