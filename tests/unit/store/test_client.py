from __future__ import annotations

import hashlib
import json
import os

import pytest

from hapi_compute.store.auth import Credentials
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import (
    AuthFailed,
    Corrupted,
    NotFound,
    Overwritten,
    StoreError,
    Transient,
    Unreachable,
)
from swift_hapi.protocol.errors import BadCut, EngineBusy
from tests.unit.store.server import Reply


def etag(body: bytes) -> dict[str, str]:
    return {"ETag": hashlib.md5(body).hexdigest()}


def test_get_returns_checked_bytes(client, swift):
    swift.replies.append(Reply(200, b"hello", etag(b"hello")))
    assert client.get("c", "o p").body == b"hello"
    method, path, headers, _ = swift.seen[0]
    assert (method, path) == ("GET", "/v1/AUTH_test/c/o%20p")
    assert headers["X-Auth-Token"] == "tk1"
    assert headers["Accept-Encoding"] == "identity"
    counts = client.counters.snapshot()
    assert (counts.requests, counts.retries, counts.bytes_received) == (1, 0, 5)


@pytest.mark.parametrize("name", ["a//b", "../x", "./y", "a/../b", "%2e%2e/z", "t\U0001f600"])
def test_names_reach_the_server_as_they_are(client, swift, name):
    from urllib.parse import unquote

    swift.replies.append(Reply(200))
    client.get("c", name)
    assert unquote(swift.seen[0][1]) == f"/v1/AUTH_test/c/{name}"


def test_wrong_etag_is_retried_then_an_error(client, swift):
    swift.replies.extend([Reply(200, b"hellO", etag(b"hello"))] * 3)
    with pytest.raises(Corrupted, match="c/o"):
        client.get("c", "o")
    assert client.counters.snapshot().retries == 2


def test_large_object_etag_is_no_checksum(client, swift):
    headers = etag(b"something else") | {"X-Static-Large-Object": "True"}
    swift.replies.append(Reply(200, b"hello", headers))
    assert client.get("c", "o").body == b"hello"


def test_broken_connection_is_retried(client, swift):
    swift.replies.append(Reply(200, b"hello", etag(b"hello"), cut_short=True))
    swift.replies.append(Reply(200, b"hello", etag(b"hello")))
    assert client.get("c", "o").body == b"hello"
    assert client.counters.snapshot().retries == 1


def test_retry_after_is_waited_for(client, swift, pauses):
    swift.replies.append(Reply(503, b"busy", {"Retry-After": "4"}))
    swift.replies.append(Reply(200))
    client.get("c", "o")
    assert pauses == [4.125]


def test_one_fresh_token_after_401_without_a_retry(client, swift, pauses):
    swift.replies.extend([Reply(401), Reply(200, b"x", etag(b"x"))])
    assert client.get("c", "o").body == b"x"
    assert [headers["X-Auth-Token"] for _, _, headers, _ in swift.seen] == ["tk1", "tk2"]
    assert pauses == [] and client.counters.snapshot().retries == 0


def test_second_401_is_final(client, swift):
    swift.replies.extend([Reply(401), Reply(401)])
    with pytest.raises(AuthFailed):
        client.get("c", "o")
    assert not swift.replies


@pytest.mark.parametrize(
    ("status", "error"),
    [(403, StoreError), (404, NotFound), (412, Overwritten), (400, StoreError)],
)
def test_permanent_statuses(client, swift, status, error):
    swift.replies.append(Reply(status, b"<html><h1>why</h1></html>"))
    with pytest.raises(error, match="c/o") as caught:
        client.get("c", "o")
    assert caught.value.status == status and not caught.value.retryable
    assert len(swift.seen) == 1


@pytest.mark.parametrize("status", [429, 498, 500, 502, 503, 504, 507])
def test_transient_statuses(client, swift, status):
    swift.replies.extend([Reply(status)] * 3)
    with pytest.raises(Transient):
        client.get("c", "o")
    assert len(swift.seen) == 3


def problem(error) -> Reply:
    return Reply(error.status, error.body(), {"Content-Type": "application/problem+json"})


def test_problem_documents_become_their_errors(client, swift):
    swift.replies.append(problem(BadCut("no cut is called 'x'", near="y")))
    with pytest.raises(BadCut, match="c/o.*no cut is called") as caught:
        client.get("c", "o")
    assert caught.value.members == {"near": "y"}


def test_retryable_problems_are_retried(client, swift):
    swift.replies.extend([problem(EngineBusy("full")), Reply(200)])
    client.get("c", "o")
    assert client.counters.snapshot().retries == 1


def test_put_sends_and_checks_md5(client, swift):
    swift.replies.append(Reply(201, b"", etag(b"data")))
    client.put("c", "o", b"data", content_type="text/plain")
    _, _, headers, body = swift.seen[0]
    assert body == b"data" and headers["ETag"] == etag(b"data")["ETag"]
    swift.replies.extend([Reply(201, b"", etag(b"other"))] * 3)
    with pytest.raises(Corrupted, match="c/o"):
        client.put("c", "o", b"data", content_type="text/plain")


def test_listing_goes_on_until_it_is_empty(client, swift):
    def page(*names):
        entries = [{"name": n, "hash": "0" * 32, "bytes": 1, "content_type": "x"} for n in names]
        return Reply(200, json.dumps(entries).encode())

    swift.replies.extend([page("a", "b&c"), page("d"), page()])
    assert [o.name for o in client.list("c", "")] == ["a", "b&c", "d"]
    assert "marker=b%26c" in swift.seen[1][1]


def test_listing_asks_for_what_if_match_compares(client, swift):
    entries = [
        {"name": "slo", "hash": "1" * 32, "bytes": 9, "slo_etag": '"' + "2" * 32 + '"'},
        {"name": "dlo", "hash": "3" * 32, "bytes": 0},
    ]
    swift.replies.append(Reply(200, json.dumps(entries).encode()))
    swift.replies.append(Reply(200, b"", {"ETag": '"' + "4" * 32 + '"', "Content-Length": "77"}))
    swift.replies.append(Reply(200, b"[]"))
    slo, dlo = client.list("c")
    assert slo.etag == "2" * 32
    assert (dlo.etag, dlo.bytes) == ("4" * 32, 77)


def test_head_and_delete_of_nothing(client, swift):
    swift.replies.extend([Reply(404), Reply(404)])
    assert client.head("c", "o") is None
    assert client.delete("c", "o") is False


def test_nobody_there():
    client = SwiftClient(Credentials("http://127.0.0.1:9/auth", "u", "k"))
    client.retrier._sleep = lambda seconds: None
    with pytest.raises(Unreachable, match="auth as u"):
        client.get("c", "o")


def test_works_after_fork(client, swift):
    swift.replies.append(Reply(200, b"parent", etag(b"parent")))
    assert client.get("c", "o").body == b"parent"
    swift.replies.append(Reply(200, b"child", etag(b"child")))
    pid = os.fork()
    if pid == 0:
        os._exit(0 if client.get("c", "o").body == b"child" else 1)
    assert os.waitpid(pid, 0)[1] == 0
    swift.replies.append(Reply(200, b"again", etag(b"again")))
    assert client.get("c", "o").body == b"again"


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8080/v1/AUTH_a", True),
        ("http://[::1]:8080/v1/AUTH_a", True),
        ("http://localhost/v1/AUTH_a", True),
        ("https://swift.example.org/v1/AUTH_a", False),
        ("http://10.0.0.1:8080/v1/AUTH_a", False),
    ],
)
def test_whether_the_store_is_on_this_machine(url, here):
    credentials = Credentials("http://127.0.0.1:1/auth", "u", "k", storage_url=url)
    assert SwiftClient(credentials).on_this_machine is here
