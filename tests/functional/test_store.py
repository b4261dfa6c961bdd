"""The client against a real Swift."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from hapi_compute.store.errors import AuthFailed, NotFound, Overwritten, StoreError
from swift_hapi.cluster import ClusterConfig, EmbeddedCluster
from tests.functional.training import client_of, digit_folders, put, run

NAMES = [
    "plain", "a b", "100%", "%41", "what?x=1&y", "hash#tag", "a//b", "/leading", "trailing/",
    "../up", "./here", "a/../b", "\U0001f600/ü", "line\nbreak", "semi;colon,comma", "quo\"te'",
    "tab\there", "+plus+", "back\\slash", "~tilde",
]  # fmt: skip


@pytest.fixture
def store(cluster):
    return client_of(cluster)


def test_names_of_every_kind(store, container):
    for number, name in enumerate(NAMES):
        store.put(container, name, b"%d" % number, content_type="text/plain")
    assert sorted(o.name for o in store.list(container)) == sorted(NAMES)
    for number, name in enumerate(NAMES):
        assert store.get(container, name).body == b"%d" % number
        assert store.head(container, name) is not None
    under = [o.name for o in store.list(container, "a/")]
    assert under == ["a/../b", "a//b"]
    for name in NAMES:
        assert store.delete(container, name)
    assert list(store.list(container)) == []


def test_containers_of_every_kind(store):
    for name in ("c d", "c%41", "c?d#e", "ü\U0001f600", "c\nd"):
        store.put_container(name)
        store.put(name, "o", b"x", content_type="text/plain")
        assert [o.name for o in store.list(name)] == ["o"]
        store.delete(name, "o")
        assert store.delete(name) and not store.delete(name)


def test_overwritten_object(store, container):
    store.put(container, "o", b"old", content_type="text/plain")
    (listed,) = store.list(container)
    assert store.get(container, "o", if_match=listed.etag).body == b"old"
    store.put(container, "o", b"new", content_type="text/plain")
    with pytest.raises(Overwritten, match=f"{container}/o.*overwritten"):
        store.get(container, "o", if_match=listed.etag)


def test_large_object_in_a_listing_can_be_pinned(store, account, container):
    segments = f"{container}_segments"
    store.put_container(segments)
    parts = []
    for number, body in enumerate((b"first", b"second")):
        store.put(segments, f"s/{number}", body, content_type="text/plain")
        etag = hashlib.md5(body).hexdigest()
        parts.append({"path": f"/{segments}/s/{number}", "etag": etag, "size_bytes": len(body)})
    url = account().url(container, "slo") + "?multipart-manifest=put"
    account().session.put(url, data=json.dumps(parts)).raise_for_status()
    account().put(container, "dlo", X_Object_Manifest=f"{segments}/s/")
    listed = {o.name: o for o in store.list(container)}
    for name in ("slo", "dlo"):
        answer = store.get(container, name, if_match=listed[name].etag)
        assert answer.body == b"firstsecond"
    assert listed["dlo"].bytes == 11


def test_nothing_there(store, container):
    with pytest.raises(NotFound, match="nothing"):
        store.get(container, "nothing")
    with pytest.raises(NotFound):
        list(store.list("nowhere"))
    assert store.head(container, "nothing") is None


def test_others_are_kept_out(cluster, store, container):
    store.put(container, "o", b"x", content_type="text/plain")
    other = client_of(cluster, "test2:tester2", store.storage_url)
    with pytest.raises(StoreError) as caught:
        other.get(container, "o")
    assert caught.value.status == 403 and not caught.value.retryable
    store.post(container, None, {"X-Container-Read": "test2:tester2"})
    assert other.get(container, "o").body == b"x"
    assert other.own_account().storage_url != store.storage_url


def test_wrong_key(cluster):
    client = client_of(cluster)
    object.__setattr__(client.credentials, "key", "wrong")
    with pytest.raises(AuthFailed):
        client.get("c", "o")


def test_forgotten_token_is_replaced(store, container):
    store.put(container, "o", b"x", content_type="text/plain")
    object.__setattr__(store._auth.grant(), "token", "AUTH_tkgone")
    assert store.get(container, "o").body == b"x"
    assert store.counters.snapshot().retries == 0


def test_info_says_that_heads_run_here(store):
    assert "swift_hapi" in store.info()


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """A cluster with short listings and with tokens that live for two seconds."""
    config = ClusterConfig(
        dir=tmp_path_factory.mktemp("strict"), listing_limit=100, token_life=2
    )
    with EmbeddedCluster(config) as running:
        yield running


def test_three_hundred_objects_by_the_hundred(strict):
    store = client_of(strict)
    store.put_container("many")
    names = sorted(f"{number} %?#\n" for number in range(300))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: store.put("many", n, b"x", content_type="text/plain"), names))
    before = store.counters.snapshot()
    assert [each.name for each in store.list("many")] == names
    counts = store.counters.snapshot() - before
    # A token may end meanwhile.
    assert counts.requests - counts.logins == 4
    assert "many" in {each.name for each in store.containers()}


def test_no_request_fails_when_tokens_end(strict, tmp_path):
    """Uploads, a training run and reads over several lives of a token."""
    store = client_of(strict, attempts=1)
    tokens = set()
    digits = digit_folders(tmp_path / "d", 0, 24)
    put(store, digits, "swift://tokens/d")
    while len(tokens) < 3:
        run(store, "swift://tokens/d", epochs=1, split="maxpool", require_pushdown=True)
        tokens.add(store._auth.grant().token)
    assert store.counters.snapshot().retries == 0
