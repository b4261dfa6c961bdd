from __future__ import annotations

import pytest

from hapi_compute.store.auth import AuthV1, Credentials
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import AuthFailed
from hapi_compute.store.retry import Retrier, RetryPolicy
from tests.unit.store.server import Reply


def auth_of(swift, clock=lambda: 0.0, key="testing") -> AuthV1:
    retrier = Retrier(RetryPolicy(attempts=2), sleep=lambda s: None)
    return AuthV1(Credentials(f"{swift.url}/auth", "test:tester", key), retrier, clock=clock)


def test_token_is_kept(swift):
    auth = auth_of(swift)
    assert auth.grant() is auth.grant()
    assert auth.grant().token == "tk1"
    assert auth.grant().storage_url == f"{swift.url}/v1/AUTH_test"


def test_token_is_renewed_before_it_expires(swift):
    now = [0.0]
    swift.token_life = "1000"
    auth = auth_of(swift, lambda: now[0])
    auth.grant()
    now[0] = 939.0
    assert auth.grant().token == "tk1"
    now[0] = 941.0
    assert auth.grant().token == "tk2"


def test_refused_grant_is_forgotten_once(swift):
    auth = auth_of(swift)
    first = auth.grant()
    auth.refused(first)
    second = auth.grant()
    assert second.token == "tk2"
    # Another thread that still had the first token must not throw the second away.
    auth.refused(first)
    assert auth.grant() is second


def test_logins_are_counted(swift, client):
    swift.replies.extend([Reply(200), Reply(401), Reply(200), Reply(200)])
    client.get("c", "o")
    assert client.counters.snapshot().logins == 1
    client.get("c", "o")
    client.own_account().get("c", "o")
    counts = client.counters.snapshot()
    assert (counts.logins, counts.requests, counts.retries) == (2, 4, 0)


def test_wrong_key(swift):
    with pytest.raises(AuthFailed, match="test:tester") as caught:
        auth_of(swift, key="wrong-secret").grant()
    assert "wrong-secret" not in str(caught.value)


def test_secrets_do_not_show(swift, client):
    swift.replies.append(Reply(200))
    client.get("c", "o")
    for thing in (client, client.credentials, client._auth.grant()):
        assert "testing" not in repr(thing) and "tk1" not in repr(thing)


def test_other_account(swift, client):
    other = SwiftClient(
        Credentials(f"{swift.url}/auth", "test:tester", "testing", f"{swift.url}/v1/AUTH_other")
    )
    swift.replies.extend([Reply(200), Reply(200)])
    other.get("c", "o")
    own = other.own_account()
    own.get("c", "o")
    assert [path for _, path, _, _ in swift.seen] == ["/v1/AUTH_other/c/o", "/v1/AUTH_test/c/o"]
    assert (other.account, own.account) == ("AUTH_other", "AUTH_test")
    assert swift.tokens == 1
    assert own.counters is other.counters


@pytest.mark.parametrize(
    "bad", [{"auth_url": ""}, {"user": ""}, {"key": ""}, {"auth_url": "ftp://x"}]
)
def test_credentials_are_checked(bad):
    with pytest.raises(ValueError):
        Credentials(**{"auth_url": "http://x", "user": "u", "key": "k"} | bad)
