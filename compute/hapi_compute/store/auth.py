"""Tokens: kept, renewed in time, forgotten when refused. And auth v1 (tempauth, swauth): user and
key against a token and a storage URL. For Keystone see :mod:`hapi_compute.store.keystone`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import requests

from hapi_compute.store.errors import AuthFailed, StoreError, Transient, Unreachable
from hapi_compute.store.retry import Retrier

#: a token is renewed this many seconds (or a tenth of its life) before it expires
_MARGIN = 60.0
_TIMEOUT = (5, 30)


@dataclass(frozen=True)
class Credentials:
    """Who we are; the key never shows in a ``repr``.

    :param storage_url: account to work in, when it is not the user's own
    :param cacert: file of the CAs to trust in place of the usual ones
    """

    auth_url: str
    user: str
    key: str = field(repr=False)
    storage_url: str | None = None
    cacert: str | None = None

    def __post_init__(self):
        for name in ("auth_url", "user", "key"):
            if not getattr(self, name):
                raise ValueError(f"{name} is missing: give --{name.replace('_', '-')} or set ST_*")
        for name in ("auth_url", "storage_url"):
            url = getattr(self, name)
            if url and not url.startswith(("http://", "https://")):
                raise ValueError(f"{name} {url!r}: want http://... or https://...")


    @property
    def verify(self) -> bool | str:
        """How https servers are verified, as ``requests`` takes it."""
        return True if self.cacert is None else self.cacert

    def authenticator(self, retrier: Retrier) -> AuthV1:
        """What gets tokens for these credentials."""
        return AuthV1(self, retrier)


@dataclass(frozen=True)
class Grant:
    """What the auth service gave us.

    ``storage_url`` is the user's own account; ``expires`` is by the caller's clock.
    """

    storage_url: str
    token: str = field(repr=False)
    expires: float


class Login(Protocol):
    """Credentials of whatever kind, as the client uses them; a frozen dataclass that can be
    pickled and does not show its secrets."""

    storage_url: str | None

    @property
    def verify(self) -> bool | str: ...

    def authenticator(self, retrier: Retrier) -> Authenticator: ...


class Authenticator:
    """Keeps a valid token. Safe to use from many threads."""

    def __init__(self, retrier: Retrier, *, clock: Callable[[], float] = time.monotonic):
        self._retrier = retrier
        self._clock = clock
        self._lock = threading.Lock()
        self._grant: Grant | None = None
        #: called after every login
        self.on_login: Callable[[], None] = lambda: None

    def _ask(self) -> Grant:
        """A fresh grant."""
        raise NotImplementedError

    def grant(self) -> Grant:
        """The current grant, asked for anew when there is none or it is about to expire.

        :raises AuthFailed: user or key refused
        :raises StoreError: the auth service answers nonsense or not at all
        """
        with self._lock:
            if self._grant is None or self._clock() >= self._grant.expires:
                self._grant = self._retrier.call(self._ask)
                self.on_login()
            return self._grant

    def refused(self, grant: Grant) -> None:
        """Forget ``grant`` after a 401, unless another thread has renewed it meanwhile."""
        with self._lock:
            if self._grant is grant:
                self._grant = None


class AuthV1(Authenticator):
    """Asks an auth v1 service."""

    def __init__(
        self,
        credentials: Credentials,
        retrier: Retrier,
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(retrier, clock=clock)
        self.credentials = credentials

    def _ask(self) -> Grant:
        who = f"auth as {self.credentials.user} at {self.credentials.auth_url}"
        headers = {"X-Auth-User": self.credentials.user, "X-Auth-Key": self.credentials.key}
        try:
            answer = requests.get(
                self.credentials.auth_url, headers=headers, timeout=_TIMEOUT,
                allow_redirects=False, verify=self.credentials.verify,
            )  # fmt: skip
        except requests.exceptions.SSLError as error:
            raise StoreError(f"{who}: {tls_reason(error)}") from None
        except requests.ReadTimeout:
            raise Unreachable(f"{who}: no answer within {_TIMEOUT[1]} s") from None
        except requests.RequestException as error:
            raise Unreachable(
                f"auth as {self.credentials.user}: cannot connect to "
                f"{self.credentials.auth_url}: {cause(error)}"
            ) from None
        if answer.status_code in (401, 403):
            raise AuthFailed(f"{who}: {answer.status_code}, user or key refused")
        if answer.status_code >= 500:
            raise Transient(f"{who}: {answer.status_code}", status=answer.status_code)
        token = answer.headers.get("X-Auth-Token") or answer.headers.get("X-Storage-Token")
        url = answer.headers.get("X-Storage-Url")
        if answer.status_code // 100 != 2 or not token or not url:
            raise StoreError(f"{who}: {answer.status_code}, no auth v1 answer")
        return Grant(url.rstrip("/"), token, self._clock() + _life(answer.headers))


def _life(headers) -> float:
    try:
        seconds = float(headers.get("X-Auth-Token-Expires", ""))
    except ValueError:
        return float("inf")  # Not told: a 401 will say when.
    return usable(seconds)


def usable(seconds: float) -> float:
    """For how long a token that lives ``seconds`` is used."""
    return seconds - min(_MARGIN, seconds / 10)


def cause(error: BaseException) -> str:
    """The innermost reason: the outer ones repeat host, port and pool."""
    seen = set()
    while True:
        seen.add(id(error))
        inner = getattr(error, "reason", None) or error.__context__
        if not isinstance(inner, BaseException) or id(inner) in seen:
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return text[0].lower() + text[1:]
        error = inner


def tls_reason(error: Exception) -> str:
    """Why a server could not be verified; trying again would not help."""
    found = re.search(r"certificate verify failed: ([^(\[]*)", str(error))
    why = found.group(1).strip() if found else "no TLS connection could be made"
    return f"{why} (--cacert names a CA to trust)"
