"""Keystone v3 against a small one over HTTP (there is no Keystone to be had in a test)."""

from __future__ import annotations

import os
import pickle

import pytest

from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import AuthFailed, StoreError, Unreachable
from hapi_compute.store.keystone import KeystoneAuth, KeystoneLogin
from hapi_compute.store.retry import Retrier, RetryPolicy
from tests.unit.store.memory import MemorySwift

ONCE = RetryPolicy(attempts=1)


@pytest.fixture
def swift():
    server = MemorySwift()
    server.put("c", "o", b"body")
    yield server
    server.close()


@pytest.fixture
def clean(monkeypatch, tmp_path):
    """No configuration of this machine's user."""
    for name in list(os.environ):
        if name.startswith(("OS_", "ST_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return monkeypatch


@pytest.fixture
def variables(swift, clean):
    for name, value in {
        "AUTH_URL": f"{swift.url}/identity/v3", "USERNAME": "u", "PASSWORD": "testing",
        "PROJECT_NAME": "p", "USER_DOMAIN_NAME": "Default", "PROJECT_DOMAIN_NAME": "Default",
        "REGION_NAME": "one",
    }.items():  # fmt: skip
        clean.setenv(f"OS_{name}", value)
    return clean


def clouds(tmp_path, swift, **more) -> None:
    lines = [f"    {name}: {value}" for name, value in more.items()]
    (tmp_path / "clouds.yaml").write_text(
        "clouds:\n  mine:\n    auth_type: v3applicationcredential\n    auth:\n"
        f"      auth_url: {swift.url}/identity/v3\n"
        "      application_credential_id: abc\n" + "\n".join(lines) + "\n"
    )
    (tmp_path / "secure.yaml").write_text(
        "clouds:\n  mine:\n    auth:\n      application_credential_secret: testing\n"
    )


def test_variables(swift, variables):
    client = SwiftClient(KeystoneLogin(), policy=ONCE)
    assert client.get("c", "o").body == b"body"
    assert (client.storage_url, client.account) == (f"{swift.url}/v1/AUTH_test", "AUTH_test")
    (request,) = swift.keystone
    assert request["identity"]["password"]["user"]["name"] == "u"
    assert request["scope"]["project"]["name"] == "p"


def test_a_cloud_of_clouds_yaml(swift, clean, tmp_path):
    clouds(tmp_path, swift, region_name="one", interface="internal")
    # openstacksdk remembers the directory that it was imported in.
    clean.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    clean.setenv("OS_CLIENT_SECURE_FILE", str(tmp_path / "secure.yaml"))
    client = SwiftClient(KeystoneLogin("mine"), policy=ONCE)
    assert client.get("c", "o").body == b"body"
    assert swift.keystone[0]["identity"]["application_credential"]["id"] == "abc"


def test_a_token_is_kept_and_renewed_when_refused(swift, variables):
    client = SwiftClient(KeystoneLogin(), policy=ONCE)
    for _ in range(3):
        client.get("c", "o")
    assert len(swift.keystone) == 1
    swift.revoke()
    client.get("c", "o")
    assert len(swift.keystone) == 2
    assert client.counters.snapshot().retries == 0


def test_a_token_of_twenty_seconds(swift, variables):
    now = [0.0]
    swift.token_life = 20.0
    auth = KeystoneAuth(KeystoneLogin(), Retrier(ONCE), clock=lambda: now[0])
    first = auth.grant()
    assert 15 < first.expires <= 18
    now[0] = 15.0
    assert auth.grant() is first and len(swift.keystone) == 1
    now[0] = 18.5
    assert auth.grant().token != first.token and len(swift.keystone) == 2


def test_another_account_with_the_same_token(swift, variables):
    shared = SwiftClient(
        KeystoneLogin(storage_url=f"{swift.url}/v1/AUTH_test"), policy=ONCE
    )
    assert shared.get("c", "o").body == b"body"
    own = shared.own_account()
    assert own.get("c", "o").body == b"body" and own is not shared
    assert len(swift.keystone) == 1


def test_what_goes_wrong(swift, variables, tmp_path):
    variables.setenv("OS_PASSWORD", "secret-but-wrong")
    with pytest.raises(AuthFailed, match="/identity/v3: 401, refused") as caught:
        SwiftClient(KeystoneLogin(), policy=ONCE).get("c", "o")
    assert "secret" not in str(caught.value)
    variables.setenv("OS_PASSWORD", "testing")
    variables.setenv("OS_REGION_NAME", "three")
    with pytest.raises(StoreError, match="no object-store endpoint in region 'three'"):
        SwiftClient(KeystoneLogin(), policy=ONCE).get("c", "o")
    variables.setenv("OS_AUTH_URL", "http://127.0.0.1:9/v3")
    with pytest.raises(Unreachable, match="127.0.0.1:9"):
        SwiftClient(KeystoneLogin(), policy=ONCE).get("c", "o")
    with pytest.raises(ValueError, match="cloud 'nowhere': "):
        SwiftClient(KeystoneLogin("nowhere"))
    with pytest.raises(ValueError, match="storage_url"):
        KeystoneLogin(storage_url="swift://x")


def test_secrets_do_not_show_and_do_not_travel(swift, variables):
    login = KeystoneLogin()
    client = SwiftClient(login, policy=ONCE)
    client.get("c", "o")
    token = client._auth.grant().token
    for text in (repr(login), repr(client), repr(client._auth.grant()), str(pickle.dumps(login))):
        assert "testing" not in text and token not in text
    again = pickle.loads(pickle.dumps(login))
    assert SwiftClient(again, policy=ONCE).get("c", "o").body == b"body"
