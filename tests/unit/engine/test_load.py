"""Admission, limits, deadlines and leaving clients, on a real engine with room for one."""

from __future__ import annotations

import resource
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from swift_hapi.protocol import payload
from tests.unit.engine.client import Expecting, ask, ask_expecting
from tests.unit.engine.conftest import EngineProcess, feature_headers, post, shard

#: 40 of these take seconds
SLOW = {"X_Hapi_Transform": "crop=512", "X_Hapi_Batch_Size": "1"}
#: 12 of these do not fit into a socket's buffer
LARGE = {"X_Hapi_Transform": "crop=128", "X_Hapi_Split": "maxpool"}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory, models):
    """One place; one request per account (one more account may wait); a quick no."""
    directory = tmp_path_factory.mktemp("narrow")
    process = EngineProcess(
        directory,
        queue_depth=1,
        account_concurrency=1,
        admission_timeout="0.2",
        memory_budget="512 MiB",
        batch_time="60",  # memory alone decides how large micro-batches are
    )
    (directory / "models" / "net1.safetensors").write_bytes(models[0].path.read_bytes())
    try:
        process.start()
        # So that nobody has to wait for the model, or for what is derived from it.
        for headers in ({}, SLOW, LARGE):
            known = feature_headers(models[0].digest, **headers)
            process.wait_until(
                lambda known=known: ask(
                    process.socket, "HEAD", "/v1/features", headers=known
                ).status == 200
            )  # fmt: skip
        yield process
    finally:
        process.stop()


def expecting(engine, models, body: bytes, **headers) -> Expecting:
    return Expecting(
        engine.socket,
        "POST",
        "/v1/features",
        len(body),
        feature_headers(models[0].digest, **headers),
    )


def test_no_place_is_said_before_the_body(narrow, models):
    body = shard(2)
    with expecting(narrow, models, body) as first:
        first.wait_for_100()
        with expecting(narrow, models, body, X_Hapi_Account="AUTH_other") as second:
            answer = second.answer()
        assert (answer.status, answer.problem) == (503, "engine-busy")
        assert 1 <= int(answer.headers["Retry-After"]) <= 60
        assert answer.headers["Connection"] == "close"
        assert answer.json()["retryable"] is True
        first.send(body)
        assert first.answer().status == 200
    narrow.wait_until(narrow.idle)


def test_one_account_cannot_take_more_than_its_share(narrow, models):
    body = shard(2)
    with expecting(narrow, models, body) as first:
        first.wait_for_100()
        with expecting(narrow, models, body) as second:
            answer = second.answer()
        assert (answer.status, answer.problem) == (429, "account-limit")
        assert "AUTH_test" in answer.json()["detail"]
        assert 1 <= int(answer.headers["Retry-After"]) <= 60
        assert answer.headers["Connection"] == "close"
    narrow.wait_until(narrow.idle)
    answer = ask_expecting(
        narrow.socket, "POST", "/v1/features", body, feature_headers(models[0].digest)
    )
    assert answer.status == 200


def test_an_object_that_never_fits(narrow, models):
    """It is within max_object_bytes; it is the memory budget that says no, and for good."""
    length = narrow.status()["memory"]["input_bytes_capacity"] + 1
    headers = feature_headers(models[0].digest)
    with Expecting(narrow.socket, "POST", "/v1/features", length, headers) as request:
        answer = request.answer()
    assert (answer.status, answer.problem) == (413, "too-large")
    assert "for objects in all" in answer.json()["detail"]


@pytest.mark.parametrize("sent", [0, 1000])
def test_leaving_before_the_body_is_sent(narrow, models, sent):
    gone = narrow.status()["counters"]["clients_gone"]
    body = shard(2)
    with expecting(narrow, models, body) as request:
        request.wait_for_100()
        request.send(body[:sent])
    narrow.wait_until(narrow.idle)
    assert narrow.status()["counters"]["clients_gone"] == gone + 1


def test_leaving_during_the_computation(narrow, models):
    before = narrow.status()["counters"]
    body = shard(40)
    with expecting(narrow, models, body, **SLOW) as request:
        request.wait_for_100()
        request.send(body)
        narrow.wait_until(
            lambda: narrow.status()["counters"]["bytes_in"] == before["bytes_in"] + len(body)
        )
    narrow.wait_until(narrow.idle)
    after = narrow.status()["counters"]
    assert after["clients_gone"] == before["clients_gone"] + 1
    assert after["samples"] == before["samples"]


def test_deadline_passes_while_the_body_is_awaited(narrow, models):
    body = shard(2)
    with expecting(narrow, models, body, X_Hapi_Deadline="0.3") as request:
        request.wait_for_100()
        answer = request.answer()
    assert (answer.status, answer.problem) == (504, "deadline-exceeded")
    assert answer.headers["Connection"] == "close"
    narrow.wait_until(narrow.idle)


def test_deadline_passes_during_the_computation(narrow, models):
    body = shard(40)
    samples = narrow.status()["counters"]["samples"]
    answer = post(
        narrow, body, feature_headers(models[0].digest, X_Hapi_Deadline="0.3", **SLOW)
    )
    assert (answer.status, answer.problem) == (504, "deadline-exceeded")
    narrow.wait_until(narrow.idle)
    assert narrow.status()["counters"]["samples"] == samples


def test_work_that_is_given_up_is_paid_for(narrow, models):
    body = shard(40)
    headers = feature_headers(models[0].digest, X_Hapi_Deadline="0.3", **SLOW)
    assert post(narrow, body, headers | {"X-Hapi-Account": "AUTH_hasty"}).status == 504
    narrow.wait_until(narrow.idle)
    used = narrow.status()["accounts"]["AUTH_hasty"]
    assert used["cpu_seconds"] > 0 and used["bytes_in"] == len(body)
    assert used["requests"] == used["samples"] == used["bytes_out"] == 0


def test_answer_that_is_not_taken(narrow, models):
    body = shard(12)
    samples = narrow.status()["counters"]["samples"]
    with expecting(narrow, models, body, X_Hapi_Deadline="5", **LARGE) as request:
        request.wait_for_100()
        request.send(body)
        narrow.wait_until(lambda: narrow.status()["counters"]["samples"] == samples + 12)
        assert not narrow.idle()
        narrow.wait_until(narrow.idle)
        answer = request.answer()
    assert answer.status == 200
    assert len(answer.body) < int(answer.headers["Content-Length"])


# How much the kernel refuses depends on what the allocator holds, and so on what ran before:
# when even one sample is refused, the answer is 413.
@pytest.mark.slow
def test_memory_that_cannot_be_had_makes_micro_batches_smaller(narrow, models):
    """The kernel refuses what the budget would allow."""
    headers = feature_headers(models[0].digest, X_Hapi_Transform="crop=320")
    body = shard(24)
    before = narrow.status()["allocation_failures"]
    pid = narrow.process.pid
    with open(f"/proc/{pid}/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    unlimited = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (size + (96 << 20), unlimited[1]))
    answers = []

    def answered() -> bool:
        # On a loaded machine 0.2 s are too few to find out what a new image size takes.
        answers.append(post(narrow, body, headers))
        return answers[-1].status != 503

    try:
        narrow.wait_until(answered)
    finally:
        resource.prlimit(pid, resource.RLIMIT_AS, unlimited)
    answer = answers[-1]
    assert answer.status == 200, answer.body
    assert narrow.status()["allocation_failures"] > before
    assert int(answer.headers["X-Hapi-Batch-Size"]) < 24
    narrow.wait_until(narrow.idle)
    features = payload.decode(answer.body).features
    again = payload.decode(post(narrow, body, headers).body).features
    assert np.abs(features - again).max() <= 1e-5 * np.abs(again).max()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\xff\x13\x37" * 100,
        b"\r\n\r\n",
        b"POST /v1/features HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/features HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /v1/features HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\nX: " + b"y" * 200_000,
        b"POST /v1/features HTTP/1.1\r\nHost: e\r\nX-Hapi-Model: \xff\xfe\r\n\r\n",
        b"GET /readyz HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
def test_garbage_on_the_socket(narrow, garbage):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(60)
        client.connect(str(narrow.socket))
        client.sendall(garbage)
        client.shutdown(socket.SHUT_WR)
        try:
            while client.recv(65536):
                pass
        except ConnectionResetError:
            pass
    assert narrow.process.poll() is None
    assert ask(narrow.socket, "GET", "/readyz").status == 200
    narrow.wait_until(narrow.idle)


COUNTS = (9, 5, 7, 3, 8, 6)


def alone_and_together(engine, models) -> tuple[list[bytes], list[bytes]]:
    """Answers to requests sent one after the other, and to the same ones sent at once."""

    def ask_for(body: bytes) -> bytes:
        return post(engine, body, feature_headers(models[0].digest)).body

    bodies = [shard(count) for count in COUNTS]
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(map(ask_for, bodies)), list(pool.map(ask_for, bodies))


def test_concurrent_requests_all_get_their_own(engine, models):
    """Requests share micro-batches; nobody gets another's features."""
    for one, other in zip(*alone_and_together(engine, models), strict=True):
        alone, together = payload.decode(one), payload.decode(other)
        assert together.keys == alone.keys
        limit = 1e-5 * np.abs(alone.features).max()
        assert np.allclose(together.features, alone.features, rtol=0, atol=limit)


@pytest.fixture(scope="module")
def fixed(tmp_path_factory, models):
    """An engine that promises bits; its micro-batches wait long for each other."""
    directory = tmp_path_factory.mktemp("fixed")
    process = EngineProcess(directory, batch_max=4, fixed_batch="true", batch_wait="0.2")
    (directory / "models" / "net1.safetensors").write_bytes(models[0].path.read_bytes())
    try:
        yield process.start()
    finally:
        process.stop()


def test_fixed_batches_give_the_same_bits_whatever_else_runs(fixed, models):
    before = micro_batches(fixed)
    alone, together = alone_and_together(fixed, models)
    assert together == alone
    # Alone they ran in 3 + 2 + 2 + 1 + 2 + 2; some of the others were filled by several.
    assert micro_batches(fixed) - before < 2 * 12


def micro_batches(engine) -> int:
    text = ask(engine.socket, "GET", "/metrics").body.decode()
    (line,) = [
        line for line in text.splitlines()
        if line.startswith("hapi_engine_micro_batch_samples_count")
    ]  # fmt: skip
    return int(float(line.split()[1]))


def test_fixed_batches_are_equal_and_say_so(fixed, models):
    headers = feature_headers(models[0].digest)
    answer = post(fixed, shard(3), headers)
    assert answer.headers["X-Hapi-Batch-Size"] == "4"
    tag = answer.headers["ETag"]
    assert tag.startswith('"')
    smaller = post(fixed, shard(3), headers | {"X-Hapi-Batch-Size": "2"})
    assert smaller.headers["X-Hapi-Batch-Size"] == "2"
    # Other bits, another tag.
    assert smaller.headers["ETag"] not in (tag, f"W/{tag}")
    rows = payload.decode(answer.body).features
    assert np.array_equal(payload.decode(post(fixed, shard(1), headers).body).features, rows[:1])
