"""Who asks: what the auth filters to our left have left in the WSGI environment."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from swift.common.swob import wsgi_quote

USER = "user"
SIGNATURE = "signature"
ANONYMOUS = "anonymous"

_TOKENS = ("HTTP_X_AUTH_TOKEN", "HTTP_X_STORAGE_TOKEN", "HTTP_X_SERVICE_TOKEN")


@dataclass(frozen=True)
class Identity:
    """The requester.

    ``kind`` is ``user`` (a token that an auth filter has accepted), ``signature`` (a TempURL or
    any other override of authorization, which proves a key and no person) or ``anonymous``.
    ``account`` is the account that the work is charged to, safe as a header value: the user's
    account or project without the reseller prefix, else ``anonymous:<account of the path>``.
    ``fingerprint`` stands for the credentials in caches; None where nothing may be remembered.
    """

    kind: str
    account: str
    fingerprint: str | None = None

    @classmethod
    def from_env(cls, env: dict, path_account: str) -> Identity:
        """Read the environment of a request that auth has seen.

        :param path_account: account of the request's path, as a WSGI string
        """
        user = env.get("REMOTE_USER")
        override = env.get("swift.authorize_override")
        name = _account_of(env, user)
        if override or name.startswith(".wsgi."):
            return cls(SIGNATURE, f"anonymous:{wsgi_quote(path_account)}")
        if not name:
            return cls(ANONYMOUS, f"anonymous:{wsgi_quote(path_account)}")
        return cls(USER, wsgi_quote(name), _fingerprint(env, user))


def _account_of(env: dict, user: object) -> str:
    # Only what a filter has set may be believed: X-User-Id and its like are plain client
    # headers in a pipeline without keystone's authtoken.
    keystone = env.get("keystone.identity")
    if keystone:
        user = keystone.get("tenant")
    if isinstance(user, (tuple, list)):  # keystoneauth: (project id, project name)
        return str(next((part for part in user if part), ""))
    # tempauth and its relatives: account,account:user,group...; the account comes first
    # whatever the groups are, so all users of an account share its limits.
    return str(user or "").split(",", 1)[0]


def _fingerprint(env: dict, user: object) -> str | None:
    tokens = [env.get(name) or "" for name in _TOKENS]
    if not any(tokens):
        return None
    # The groups are part of it because they may change while the token stays; the referrer
    # because an ACL may name it.
    parts = [*tokens, repr(user), env.get("HTTP_REFERER") or ""]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
