"""Listings of any length, by a server that gives as much of them as it likes."""

from __future__ import annotations

import pytest

from hapi_compute.store.auth import Credentials
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import StoreError
from hapi_compute.store.retry import RetryPolicy
from tests.unit.store.memory import MemorySwift
from tests.unit.store.server import Reply


@pytest.fixture
def swift():
    server = MemorySwift()
    yield server
    server.close()


def client_of(swift) -> SwiftClient:
    credentials = Credentials(f"{swift.url}/auth", "test:tester", "testing")
    return SwiftClient(credentials, policy=RetryPolicy(attempts=1))


def test_twelve_thousand_objects(swift):
    names = [f"p/{number:05d}" for number in range(12_000)]
    for name in names:
        swift.put("c", name, b"x")
    swift.put("c", "q", b"x")
    found = [each.name for each in client_of(swift).list("c", "p/")]
    assert found == names


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_pages_of_any_length(swift, limit):
    names = sorted(f"{n} %?#//\n\U0001f600" for n in range(300 if limit > 1 else 12))
    for name in names:
        swift.put("c", name, b"x")
    swift.listing_limit = limit
    client = client_of(swift)
    assert [each.name for each in client.list("c")] == names
    pages = -(-len(names) // limit) + 1  # The last one is empty.
    assert swift.seen["GET", "/v1/AUTH_test/c"] == pages


def test_a_short_page_is_not_the_end(swift):
    for number in range(10):
        swift.put("c", str(number), b"x")
    swift.short_pages = [1]
    assert len(list(client_of(swift).list("c"))) == 10


def test_the_token_ends_between_two_pages(swift):
    for number in range(10):
        swift.put("c", str(number), b"x")
    swift.listing_limit = 4
    client = client_of(swift)
    found = []
    for each in client.list("c"):
        found.append(each.name)
        if len(found) == 6:
            swift.revoke()
    assert found == [str(n) for n in range(10)]
    assert client.counters.snapshot().retries == 0


def test_containers(swift):
    swift.listing_limit = 2
    for number in range(5):
        swift.put(f"c {number}", "o", b"123")
    found = list(client_of(swift).containers())
    assert [(c.name, c.objects, c.bytes) for c in found] == [(f"c {n}", 1, 3) for n in range(5)]


def test_a_listing_that_does_not_go_on(swift):
    """A proxy that ignores the marker must not make an endless list."""
    from tests.unit.store.server import ScriptedSwift

    server = ScriptedSwift()
    try:
        page = b'[{"name": "a", "hash": "e", "bytes": 1}]'
        server.replies.extend([Reply(200, page), Reply(200, page)])
        with pytest.raises(StoreError, match="does not go on after 'a'"):
            list(client_of(server).list("c"))
    finally:
        server.close()


def test_tokens_of_a_second(swift):
    """Requests without a break, over several lives of a token: none fails, none is repeated."""
    swift.token_life = 1.0
    swift.put("c", "o", b"body")
    client = client_of(swift)
    while len(swift.tokens) < 4:
        assert client.get("c", "o").body == b"body"
    assert client.counters.snapshot().retries == 0
