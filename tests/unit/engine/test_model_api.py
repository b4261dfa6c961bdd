"""Models over the socket: looked up, received, checked, kept, dropped."""

from __future__ import annotations

import hashlib
import resource
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.building import chain
from benchmarks.costly import chain_of
from tests.unit.engine.client import Expecting, ask, ask_expecting
from tests.unit.engine.conftest import EngineProcess, feature_headers, post, shard

MODEL = "X-Hapi-Model"


@pytest.fixture(scope="module")
def own(tmp_path_factory, models):
    """An engine with room in memory to run one of the two models."""
    size = models[0].path.stat().st_size
    process = EngineProcess(
        tmp_path_factory.mktemp("own"),
        # Kernels' scratch is 24 MB, before it is measured.
        memory_budget=size * 9 // 5 + 24_000_000,
        batch_max=1,
        max_model_bytes=size * 2,
    )
    try:
        yield process.start()
    finally:
        process.stop()


def put(engine, hex_: str, body: bytes):
    return ask_expecting(engine.socket, "PUT", f"/v1/models/{hex_}", body)


def head(engine, reference: str):
    return ask(engine.socket, "HEAD", f"/v1/models/{reference}")


def test_operator_model_by_name_and_digest(engine, models):
    md5 = hashlib.md5(models[0].path.read_bytes()).hexdigest()
    for reference in ("net1", models[0].hex):
        answer = head(engine, reference)
        assert answer.status == 200
        assert answer.headers[MODEL] == models[0].digest
        assert answer.headers["X-Hapi-Model-Md5"] == md5
        assert answer.headers["X-Hapi-Model-Scope"] == "operator"
    for reference in ("net9", "0" * 64, "..%2F..%2Fetc", "net1.safetensors"):
        assert head(engine, reference).status == 404


def test_features_by_the_operators_name(engine, models):
    answer = post(engine, shard(1), feature_headers("net1"))
    assert answer.status == 200
    assert answer.headers[MODEL] == models[0].digest


def test_refused_uploads(own, models):
    first, second = models
    data = second.path.read_bytes()
    answer = put(own, first.hex, data)
    assert (answer.status, answer.problem) == (409, "model-mismatch")
    assert second.hex in answer.json()["detail"]

    for bad in (b"no extractor at all", data[:-1000], data[: 1 << 16] + data[1 << 17 :]):
        answer = put(own, hashlib.sha256(bad).hexdigest(), bad)
        assert (answer.status, answer.problem) == (422, "model-invalid")
        assert head(own, hashlib.sha256(bad).hexdigest()).status == 404

    with Expecting(own.socket, "PUT", f"/v1/models/{first.hex}", 3 * len(data)) as request:
        answer = request.answer()
    assert (answer.status, answer.problem) == (413, "too-large")
    assert answer.headers["Connection"] == "close"
    answer = ask(own.socket, "PUT", "/v1/models/ABC", b"x")
    assert (answer.status, answer.problem) == (400, "bad-header")

    with Expecting(own.socket, "PUT", f"/v1/models/{second.hex}", len(data)) as request:
        request.wait_for_100()
        request.send(data[:100_000])
    cache = own.directory / "cache"
    own.wait_until(lambda: not list(cache.glob(".upload-*")))


def test_put_of_a_known_digest_is_checked_all_the_same(engine, models):
    """Else who knows the digest of a secret model could claim to have its bytes."""
    answer = put(engine, models[0].hex, b"garbage under a known digest")
    assert (answer.status, answer.problem) == (409, "model-mismatch")


def test_post_tells_the_digest(own, models):
    answer = ask_expecting(own.socket, "POST", "/v1/models", models[1].path.read_bytes())
    assert answer.status == 201
    assert answer.headers[MODEL] == models[1].digest
    answer = head(own, models[1].hex)
    assert answer.headers["X-Hapi-Model-Scope"] == "account"
    md5 = hashlib.md5(models[1].path.read_bytes()).hexdigest()
    assert answer.headers["X-Hapi-Model-Md5"] == md5


def test_concurrent_puts_of_one_model(own, models):
    data = models[1].path.read_bytes()
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: put(own, models[1].hex, data), range(3)))
    assert [answer.status for answer in answers] == [201] * 3
    assert not list((own.directory / "cache").glob(".upload-*"))
    assert len(list((own.directory / "cache").glob(f"{models[1].hex}-*"))) == 1
    assert own.status()["models"]["loaded"] == [models[1].digest]


def test_weights_come_and_go_as_they_are_needed(own, models):
    for model in models:
        assert put(own, model.hex, model.path.read_bytes()).status == 201
    before = own.status()["models"]
    assert before["loaded_bytes"] <= len(before["loaded"]) * models[0].path.stat().st_size
    bodies = [shard(3), shard(4)]
    with ThreadPoolExecutor(4) as pool:
        jobs = [(model, body) for body in bodies for model in models]
        answers = list(
            pool.map(lambda job: post(own, job[1], feature_headers(job[0].digest)), jobs)
        )
    assert [answer.status for answer in answers] == [200] * 4
    assert [answer.headers[MODEL] for answer in answers] == [m.digest for m in models] * 2
    after = own.status()["models"]
    assert after["evictions"] > before["evictions"]
    assert set(after["known"]) == {model.digest for model in models}
    assert len(after["loaded"]) == 1


def test_hangup_reads_the_operators_directory_anew(own, models):
    directory = own.directory / "models"
    (directory / "late.safetensors").write_bytes(models[0].path.read_bytes())
    (directory / "not a name.safetensors").write_bytes(b"x")
    assert head(own, "late").status == 404
    own.process.send_signal(signal.SIGHUP)
    own.wait_until(lambda: head(own, "late").status == 200)
    assert own.status()["models"]["operator"] == {"late": models[0].digest}
    assert head(own, models[0].hex).headers["X-Hapi-Model-Scope"] == "operator"

    (directory / "late.safetensors").write_bytes(b"no extractor")
    own.process.send_signal(signal.SIGHUP)
    own.wait_until(lambda: head(own, "late").headers[MODEL] != models[0].digest)
    answer = post(own, shard(1), feature_headers("late"))
    assert (answer.status, answer.problem) == (422, "model-invalid")


def test_an_account_that_sends_bad_models_does_not_keep_others_waiting(own):
    """Three of its files are to be examined; that of another account does not wait for all."""
    cache = own.directory / "cache"
    # Each takes a second until it is refused: slow operations, another file each time.
    bad = [chain_of("interpolate", 4_000 + i) for i in range(3)]
    good = chain(5, "method", "sigmoid")
    ended: list[str] = []

    def send(account: str, body: bytes) -> int:
        digest = hashlib.sha256(body).hexdigest()
        headers = {"X-Hapi-Account": account}
        status = ask_expecting(own.socket, "PUT", f"/v1/models/{digest}", body, headers).status
        ended.append(account)
        return status

    with ThreadPoolExecutor(4) as pool:
        many = [pool.submit(send, "AUTH_many", body) for body in bad]
        own.wait_until(
            lambda: sum(len(body) for body in bad)
            == sum(path.stat().st_size for path in cache.glob(".upload-*"))
        )
        one = pool.submit(send, "AUTH_one", good)
        assert [future.result() for future in many] == [422] * 3
        assert one.result() == 201
    assert ended[-1] == "AUTH_many"


def test_damaged_files_are_as_good_as_none(tmp_path, models):
    """Their users can have them again; nobody is told that the model is at fault."""
    (tmp_path / "cache").mkdir()
    good = models[1].path.read_bytes()
    damaged = {"1": good[:100_000], "2": b"", "3": b"\xff" * 1000, "4": good[:-1] + b"?"}
    cache = tmp_path / "cache"
    for digit, content in damaged.items():
        (cache / f"{digit * 64}-{'0' * 32}.safetensors").write_bytes(content)
    md5 = hashlib.md5(good).hexdigest()
    (cache / f"{models[1].hex}-{md5}.safetensors").mkdir()
    process = EngineProcess(tmp_path, admission_timeout="60")
    try:
        process.start()
        for hex_ in (*(digit * 64 for digit in damaged), models[1].hex):
            answer = post(process, shard(1), feature_headers(f"sha256:{hex_}"))
            assert (answer.status, answer.problem) == (404, "model-not-found"), hex_
            assert head(process, hex_).status == 404
        assert put(process, models[1].hex, good).status == 201
        assert post(process, shard(1), feature_headers(models[1].digest)).status == 200
        assert [path.stat().st_size for path in cache.iterdir()] == [len(good)]
    finally:
        process.stop()


def test_a_full_disk_is_said_and_leaves_nothing(own, models):
    data = models[1].path.read_bytes()
    pid, kind = own.process.pid, resource.RLIMIT_FSIZE
    unlimited = resource.prlimit(pid, kind)
    known = set((own.directory / "cache").iterdir())
    for room in (1 << 20, len(data) - 100):
        resource.prlimit(pid, kind, (room, unlimited[1]))
        try:
            # It may be said before all has been sent.
            answer = ask(own.socket, "PUT", f"/v1/models/{models[1].hex}", data)
        finally:
            resource.prlimit(pid, kind, unlimited)
        assert (answer.status, answer.problem) == (503, "engine-busy")
        assert int(answer.headers["Retry-After"]) >= 1
        assert set((own.directory / "cache").iterdir()) == known
