"""Answers of the filter: problem documents, and what of the engine's answer goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus

from swift_hapi.protocol import headers as names
from swift_hapi.protocol.errors import CONTENT_TYPE, HapiError

#: The response is not the object: of the engine's answer only the contract's headers go on, of
#: the object's own none.
RELAYED = (
    "Content-Type",
    "Content-Length",
    "Content-Encoding",
    "ETag",
    "Vary",
    names.CONTENT_DIGEST,
    names.SERVER_TIMING,
    names.MODEL,
    names.SPLIT,
    names.TRANSFORM,
    names.DTYPE,
    names.SAMPLES,
    names.BATCH_SIZE,
    names.ON_ERROR,
    names.CACHE,
    names.NUMERICS,
    names.SOURCE_ETAG,
)


@dataclass
class Answer:
    """A WSGI response that has not been started yet.

    ``body`` may have a ``close``, which whoever sends the answer calls.
    """

    status: str
    headers: list[tuple[str, str]]
    body: Iterable[bytes] = field(default_factory=list)
    problem: str | None = None  #: name of the error, for logs

    @property
    def status_int(self) -> int:
        return int(self.status.split(" ", 1)[0])


def status_line(status: int) -> str:
    """``429 Too Many Requests``: written out, as swob knows no reason for some of ours."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"


def from_error(error: HapiError, trans_id: str, object_path: str) -> Answer:
    """The problem document of an error of ours."""
    return from_document(error.problem(), error.status, error.retry_after, trans_id, object_path)


def from_document(
    document: dict,
    status: int,
    retry_after: int | str | None,
    trans_id: str,
    object_path: str,
) -> Answer:
    """A problem document, ours or the engine's, with the members that every answer carries.

    :param object_path: quoted path of the request
    """
    complete = {**document, "trans_id": trans_id, "object": object_path}
    body = json.dumps(complete, sort_keys=True).encode() + b"\n"
    headers = [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(body)))]
    if retry_after is not None:
        headers.append(("Retry-After", str(retry_after)))
    kind = str(document.get("type", "")).rpartition(":")[2]
    return Answer(status_line(status), headers, [body], problem=kind)


def relayed_headers(get) -> list[tuple[str, str]]:
    """The contract's headers that the engine has set.

    :param get: looks a header of the engine's answer up, None when absent
    """
    found = ((name, get(name)) for name in RELAYED)
    return [(name, value) for name, value in found if value is not None]
