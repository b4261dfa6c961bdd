"""Who asks, as tempauth, keystoneauth and tempurl leave it in the environment."""

from swift_hapi.middleware.identity import ANONYMOUS, SIGNATURE, USER, Identity

TOKEN = {"HTTP_X_AUTH_TOKEN": "AUTH_tk1"}
TEMPAUTH = {**TOKEN, "REMOTE_USER": "test,test:tester,AUTH_test"}


def identity(env):
    return Identity.from_env(env, "AUTH_path")


def test_tempauth():
    found = identity(TEMPAUTH)
    assert (found.kind, found.account) == (USER, "test")
    assert found.fingerprint and "AUTH_tk1" not in found.fingerprint


def test_all_users_of_an_account_are_charged_to_it():
    plain = {**TOKEN, "REMOTE_USER": "test,test:tester3"}
    assert identity(plain).account == identity(TEMPAUTH).account


def test_keystone():
    env = {
        **TOKEN,
        "REMOTE_USER": ("id1", "project"),
        "keystone.identity": {"tenant": ("id1", "project"), "user": ("u", "user")},
        "HTTP_X_USER_ID": "u",
    }
    found = identity(env)
    assert (found.kind, found.account) == (USER, "id1")


def test_nobody():
    found = identity({})
    assert (found.kind, found.account, found.fingerprint) == (
        ANONYMOUS,
        "anonymous:AUTH_path",
        None,
    )


def test_headers_of_the_client_are_no_identity():
    forged = {
        "HTTP_X_USER_ID": "u",
        "HTTP_X_TENANT_ID": "t",
        "HTTP_X_PROJECT_ID": "p",
        "HTTP_X_IDENTITY_STATUS": "Confirmed",
        "HTTP_REMOTE_USER": "root",
        **TOKEN,
    }
    assert identity(forged).kind == ANONYMOUS


def test_signatures_are_nobody_even_beside_a_token():
    env = {**TOKEN, "REMOTE_USER": ".wsgi.tempurl", "swift.authorize_override": True}
    found = identity(env)
    assert (found.kind, found.account, found.fingerprint) == (
        SIGNATURE,
        "anonymous:AUTH_path",
        None,
    )
    assert identity({**TEMPAUTH, "swift.authorize_override": True}).kind == SIGNATURE
    assert identity({"REMOTE_USER": ".wsgi.pre_authed"}).kind == SIGNATURE


def test_whatever_changes_the_rights_changes_the_fingerprint():
    base = identity(TEMPAUTH).fingerprint
    for change in (
        {"HTTP_X_AUTH_TOKEN": "AUTH_tk2"},
        {"HTTP_X_SERVICE_TOKEN": "AUTH_tk2"},
        {"REMOTE_USER": "test,test:tester"},
        {"HTTP_REFERER": "http://example.com"},
    ):
        assert identity({**TEMPAUTH, **change}).fingerprint != base
    assert identity({**TEMPAUTH, "HTTP_USER_AGENT": "x"}).fingerprint == base


def test_accounts_are_safe_in_a_header():
    found = identity({**TOKEN, "REMOTE_USER": "gr\u00c3\u00bcn x\r\ny,u"})
    assert found.account == "gr%C3%BCn%20x%0D%0Ay"
