"""What can go wrong between us and Swift, beside the typed problems of the HAPI filter."""

from __future__ import annotations

from swift_hapi.protocol.errors import HapiError


class StoreError(HapiError):
    """Swift answered with an error status, or not at all; the detail names the object."""

    name = "store"
    status = 502

    def __init__(self, detail: str, *, status: int | None = None, **options):
        super().__init__(detail, **options)
        if status is not None:
            self.status = status


class AuthFailed(StoreError):
    """The auth service refused user or key, or a fresh token was refused by the store."""

    name = "auth-failed"
    status = 401


class NotFound(StoreError):
    """404 for an account, container or object."""

    name = "not-found"
    status = 404


class Overwritten(StoreError):
    """412: the object is no longer the one that was listed."""

    name = "overwritten"
    status = 412


class Unreachable(StoreError):
    """No connection, a time-out, or a connection that broke before the end of the body."""

    name = "unreachable"
    retryable = True


class Transient(StoreError):
    """An error status that may go away by itself (408, 429, 498, 5xx)."""

    name = "transient"
    retryable = True


class Corrupted(StoreError):
    """The bytes received are not those that were promised (length, digest, ETag, echo)."""

    name = "corrupted"
    retryable = True


class PushdownUnavailable(StoreError):
    """The store took no notice of ``X-Hapi-*``: no HAPI filter is in its pipeline."""

    name = "pushdown-unavailable"
    status = 501


#: statuses worth another try; 498 is Swift's ratelimit with ``Retry-After``
TRANSIENT_STATUSES = frozenset({408, 429, 498, 500, 502, 503, 504, 507})


def from_status(status: int, what: str, reason: str, retry_after: int | None) -> StoreError:
    """The typed error for an error ``status`` of plain Swift.

    :param what: method and quoted path, e.g. ``GET container/object``
    :param reason: what the answer says
    """
    detail = f"{what}: {status} {reason}".rstrip()
    if status == 401:
        return AuthFailed(detail)
    if status == 404:
        return NotFound(detail)
    if status == 412:
        return Overwritten(f"{what}: 412, the object was overwritten since it was listed")
    if status in TRANSIENT_STATUSES:
        return Transient(detail, status=status, retry_after=retry_after)
    return StoreError(detail, status=status)
