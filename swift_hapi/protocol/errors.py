"""Typed errors and their RFC 9457 ``application/problem+json`` form.

Every error has a stable ``name`` (the problem's ``type`` is ``urn:hapi:error:<name>``), an HTTP
``status`` and a ``retryable`` flag. ``detail`` names the header, object, sample or option at
fault. The same classes are raised on both tiers: the client turns a problem document back into
the class it came from with :func:`from_problem`.
"""

from __future__ import annotations

import json

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:hapi:error:"


class HapiError(Exception):
    """Base of all typed errors; by itself a failure that has no better name.

    :param detail: one sentence naming the culprit
    :param retry_after: seconds after which a retry may help (sent as ``Retry-After``)
    :param members: extension members of the problem document (JSON values), e.g. ``sample=3``
    """

    name = "internal"
    status = 500
    retryable = False

    def __init__(self, detail: str, *, retry_after: int | None = None, **members):
        super().__init__(detail)
        self.detail = detail
        self.retry_after = retry_after
        self.members = members

    def problem(self) -> dict:
        """The problem document as a JSON-ready dict."""
        return {
            **self.members,
            "type": TYPE_PREFIX + self.name,
            "title": self.name.replace("-", " "),
            "status": self.status,
            "detail": self.detail,
            "retryable": self.retryable,
        }

    def body(self) -> bytes:
        return json.dumps(self.problem(), sort_keys=True).encode() + b"\n"


class BadHeader(HapiError):
    """A request header is missing or malformed; the detail names it."""

    name = "bad-header"
    status = 400


class BadTransform(BadHeader):
    """``X-Hapi-Transform`` does not follow the grammar, or does not suit the model or samples."""

    name = "bad-transform"


class BadCut(HapiError):
    """``X-Hapi-Split`` names no cut of the extractor."""

    name = "bad-cut"
    status = 400


class AnonymousRefused(HapiError):
    """The object is readable without credentials, but computing for anybody is switched off."""

    name = "anonymous-refused"
    status = 403


class NotEnabled(HapiError):
    """The operator wants consent, and the owner of account or container has not given it."""

    name = "not-enabled"
    status = 403


class ModelForbidden(HapiError):
    """The requester may not read the extractor file."""

    name = "model-forbidden"
    status = 403


class ModelNotFound(HapiError):
    """No extractor of that digest or name in the node's store or the model container."""

    name = "model-not-found"
    status = 404


class ModelMismatch(HapiError):
    """The bytes found under a digest do not have that digest."""

    name = "model-mismatch"
    status = 409


class TooLarge(HapiError):
    """A limit on bytes, pixels, samples or output is exceeded; the detail says which."""

    name = "too-large"
    status = 413


class UnsupportedFormat(HapiError):
    """The object is no image, tar or tensor of a supported format."""

    name = "unsupported-format"
    status = 415


class SampleRangeError(HapiError):
    """``X-Hapi-Samples`` lies outside the shard."""

    name = "sample-range"
    status = 416


class UndecodableSample(HapiError):
    """A sample cannot be decoded; members ``sample`` (index), ``key`` and ``reason``."""

    name = "undecodable-sample"
    status = 422


class DtypeOverflow(HapiError):
    """Features do not fit into ``X-Hapi-Dtype``; members ``sample``, ``key`` and ``reason``."""

    name = "dtype-overflow"
    status = 422


class ModelInvalid(HapiError):
    """An extractor file is refused; the detail says which node, tensor or limit."""

    name = "model-invalid"
    status = 422


class AccountLimit(HapiError):
    """The requester's account has as many requests under way as it may."""

    name = "account-limit"
    status = 429
    retryable = True


class EngineBusy(HapiError):
    """The engine's queue or memory is full; come back later."""

    name = "engine-busy"
    status = 503
    retryable = True


class EngineUnavailable(HapiError):
    """The engine does not answer, or died while it worked on the request."""

    name = "engine-unavailable"
    status = 503
    retryable = True


class ModelUnavailable(HapiError):
    """Swift could not say whether the requester may read the extractor file, or give it."""

    name = "model-unavailable"
    status = 503
    retryable = True


class SourceTruncated(HapiError):
    """The object's bytes ended early on their way to the engine."""

    name = "source-truncated"
    status = 503
    retryable = True


class DeadlineExceeded(HapiError):
    """The request was not done within its deadline."""

    name = "deadline-exceeded"
    status = 504
    retryable = True


def _all_subclasses(cls: type[HapiError]):
    for sub in cls.__subclasses__():
        yield sub
        yield from _all_subclasses(sub)


BY_NAME: dict[str, type[HapiError]] = {
    cls.name: cls for cls in (HapiError, *_all_subclasses(HapiError))
}
_OWN_MEMBERS = frozenset({"type", "title", "status", "detail", "retryable"})


def from_problem(
    document: object, status: int, *, retry_after: int | None = None
) -> HapiError | None:
    """Rebuild the typed error from a decoded problem document.

    :returns: None when ``document`` is not one of ours (e.g. Swift's own error page)
    """
    if not isinstance(document, dict):
        return None
    kind = document.get("type")
    if not isinstance(kind, str) or not kind.startswith(TYPE_PREFIX):
        return None
    members = {k: v for k, v in document.items() if k not in _OWN_MEMBERS and k.isidentifier()}
    members.pop("retry_after", None)
    detail = str(document.get("detail", ""))
    cls = BY_NAME.get(kind[len(TYPE_PREFIX) :], HapiError)
    error = cls(detail, retry_after=retry_after, **members)
    error.status = status
    return error
