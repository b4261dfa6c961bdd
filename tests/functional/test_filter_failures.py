"""A dying engine, a busy engine, encrypted objects, the anonymous: a cluster of its own."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
import requests

from swift_hapi.cluster import ClusterConfig, EmbeddedCluster
from tests.functional.extractors import build, features, shard
from tests.functional.filter_support import (
    decoded,
    engine_status,
    get,
    hapi_headers,
    problem,
)
from tests.functional.support import log_in, wait_until
from tests.functional.test_cluster import data_directory
from tests.functional.test_filter_denials import temp_url

SLOW = 800  # images; some ten seconds on one core


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    config = ClusterConfig(
        dir=tmp_path_factory.mktemp("failures"),
        filter_conf=(("allow_anonymous", "true"), ("max_object_bytes", str(8 << 20))),
        engine_conf=(("account_concurrency", "1"),),
        encryption=True,
        listing_limit=3,
    )
    with EmbeddedCluster(config) as running:
        yield running


@pytest.fixture(scope="module")
def user(cluster):
    return log_in(cluster, "test:tester")


@pytest.fixture(scope="module")
def model(user, tmp_path_factory):
    made = build(31, tmp_path_factory.mktemp("models"))
    user.put("hapi-models")
    user.put("hapi-models", f"{made.hex}.safetensors", data=made.data)
    user.put("c")
    user.put("c", "s.tar", data=shard(3))
    return made


@pytest.fixture(scope="module")
def slow(user, model, tmp_path_factory):
    """A model that takes its time for c/many.tar."""
    made = build(32, tmp_path_factory.mktemp("models"), width=96, side=224)
    user.put("hapi-models", f"{made.hex}.safetensors", data=made.data)
    user.put("c", "many.tar", data=shard(SLOW))
    return made


class Slow:
    """A request that keeps the engine busy, in a thread."""

    def __init__(self, cluster, user, slow):
        headers = hapi_headers(slow, X_Hapi_Transform="resize=224x224")
        headers["X-Hapi-Split"] = slow.extractor.cuts_for((3, 224, 224))[-1].name
        # The engine shall know the model before, so that admission is all there is to wait for.
        get(user, user.url("c", "many.tar"), {**headers, "X-Hapi-Samples": "0-0"})
        self.response: requests.Response | None = None
        self._session = requests.Session()
        self._ask = (user.url("c", "many.tar"), {**headers, "X-Auth-Token": user.token})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        wait_until(lambda: engine_status(cluster)["queue"]["in_flight"], "a slow request")

    def _run(self) -> None:
        url, headers = self._ask
        self.response = self._session.get(url, headers=headers)

    def join(self) -> requests.Response:
        self._thread.join(120)
        assert self.response is not None
        return self.response


def test_encrypted_objects_and_models_are_seen_in_the_clear(cluster, user, model):
    data = shard(3)
    on_disk = [path.read_bytes() for path in data_directory(cluster.dir).rglob("*.data")]
    assert any(len(stored) == len(data) for stored in on_disk)
    assert data not in on_disk
    found = decoded(get(user, user.url("c", "s.tar"), hapi_headers(model)))
    assert np.array_equal(found.features, features(model, model.last_cut, data))


def test_an_object_without_a_length_is_too_large(user, model):
    for i in range(5):
        user.put("c", f"part-{i}", data=b"x")
    user.put("c", "dlo", X_Object_Manifest="c/part-")
    assert "Content-Length" not in user.session.get(user.url("c", "dlo"), stream=True).headers
    found = problem(get(user, user.url("c", "dlo"), hapi_headers(model)))
    assert found[:2] == (413, "too-large")


def test_a_large_object_is_refused_and_its_connection_serves_on(cluster, user, model):
    user.put("c", "large", data=b"\0" * ((8 << 20) + 1))
    admitted = engine_status(cluster)["counters"]["admitted"]
    found = problem(get(user, user.url("c", "large"), hapi_headers(model)))
    assert found[:2] == (413, "too-large")
    assert "8388608" in found[2]["detail"]
    assert engine_status(cluster)["counters"]["admitted"] == admitted
    assert len(get(user, user.url("c", "large"), {}).content) == (8 << 20) + 1


def test_the_anonymous_when_the_operator_allows_it(cluster, user, model):
    user.session.post(
        user.storage_url, headers={"X-Account-Meta-Temp-URL-Key": "secret"}
    ).raise_for_status()
    url = user.url("c", "s.tar")
    signed = temp_url(user, url, "secret")
    # The key signs for every container; the signature was meant for one.
    found = problem(requests.get(signed, headers=hapi_headers(model)))
    assert found[:2] == (403, "model-forbidden")
    user.put("c", f"{model.hex}.safetensors", data=model.data)
    headers = hapi_headers(model, X_Hapi_Model_Container="c")
    assert decoded(requests.get(signed, headers=headers)).features.shape[0] == 3
    assert requests.get(url, headers=headers).status_code == 401
    user.session.post(user.url("c"), headers={"X-Container-Read": ".r:*"}).raise_for_status()
    assert decoded(requests.get(url, headers=headers)).features.shape[0] == 3
    assert problem(requests.get(url, headers=hapi_headers(model)))[0] == 403
    user.session.post(user.url("c"), headers={"X-Container-Read": ""}).raise_for_status()
    # What a token may was not remembered for those without one.
    assert requests.get(url, headers=headers).status_code == 401


def test_the_limit_is_the_accounts(cluster, user, slow, model):
    busy = Slow(cluster, user, slow)
    colleague, stranger = log_in(cluster, "test:tester3"), log_in(cluster, "test2:tester2")
    acl = {"X-Container-Read": "test:tester3,test2:tester2"}
    for container in ("c", "hapi-models"):
        user.session.post(user.url(container), headers=acl).raise_for_status()
    url = user.url("c", "s.tar")
    for who in (user, colleague):
        response = get(who, url, hapi_headers(model))
        assert problem(response)[:2] == (429, "account-limit")
        assert response.reason == "Too Many Requests"
        assert int(response.headers["Retry-After"]) > 0
    decoded(get(stranger, url, hapi_headers(model)))
    assert busy.join().status_code == 200


def test_a_killed_engine_is_503_and_comes_back(cluster, user, slow, model):
    url = user.url("c", "s.tar")
    before = decoded(get(user, url, hapi_headers(model)))
    busy = Slow(cluster, user, slow)
    pid = engine_status(cluster)["pid"]
    os.kill(pid, signal.SIGKILL)
    response = busy.join()
    status, name, document = problem(response)
    assert (status, name, document["retryable"]) == (503, "engine-unavailable", True)
    assert int(response.headers["Retry-After"]) > 0

    seen = set()

    def back() -> bool:
        # Plain requests never notice, whatever becomes of the others meanwhile.
        assert get(user, url, {}).status_code == 200
        response = get(user, url, hapi_headers(model))
        seen.add(response.status_code)
        if response.status_code != 200:
            assert problem(response)[2]["retryable"] is True
        return response.status_code == 200

    wait_until(back, "the engine to come back")
    assert seen <= {200, 503}
    after = decoded(get(user, url, hapi_headers(model)))
    assert np.array_equal(after.features, before.features)
    assert engine_status(cluster)["pid"] != pid
