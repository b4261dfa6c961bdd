"""Auth v1 (tempauth, swauth): user and key against a token and a storage URL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

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
    """

    auth_url: str
    user: str
    key: str = field(repr=False)
    storage_url: str | None = None

    def __post_init__(self):
        for name in ("auth_url", "user", "key"):
            if not getattr(self, name):
                raise ValueError(f"{name} is missing: give --{name.replace('_', '-')} or set ST_*")
        for name in ("auth_url", "storage_url"):
            url = getattr(self, name)
            if url and not url.startswith(("http://", "https://")):
                raise ValueError(f"{name} {url!r}: want http://... or https://...")


@dataclass(frozen=True)
class Grant:
    """What the auth service gave us.

    ``storage_url`` is the user's own account; ``expires`` is by the caller's clock.
    """

    storage_url: str
    token: str = field(repr=False)
    expires: float


class AuthV1:
    """Keeps a valid token. Safe to use from many threads."""

    def __init__(
        self,
        credentials: Credentials,
        retrier: Retrier,
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.credentials = credentials
        self._retrier = retrier
        self._clock = clock
        self._lock = threading.Lock()
        self._grant: Grant | None = None

    def grant(self) -> Grant:
        """The current grant, asked for anew when there is none or it is about to expire.

        :raises AuthFailed: user or key refused
        :raises StoreError: the auth service answers nonsense or not at all
        """
        with self._lock:
            if self._grant is None or self._clock() >= self._grant.expires:
                self._grant = self._retrier.call(self._ask)
            return self._grant

    def refused(self, grant: Grant) -> None:
        """Forget ``grant`` after a 401, unless another thread has renewed it meanwhile."""
        with self._lock:
            if self._grant is grant:
                self._grant = None

    def _ask(self) -> Grant:
        who = f"auth as {self.credentials.user} at {self.credentials.auth_url}"
        headers = {"X-Auth-User": self.credentials.user, "X-Auth-Key": self.credentials.key}
        try:
            answer = requests.get(
                self.credentials.auth_url, headers=headers, timeout=_TIMEOUT, allow_redirects=False
            )
        except requests.RequestException as error:
            raise Unreachable(f"{who}: {type(error).__name__}") from None
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
    return seconds - min(_MARGIN, seconds / 10)
