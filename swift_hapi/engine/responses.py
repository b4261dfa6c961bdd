"""Answers: problem documents, and bodies sent in pieces."""

from __future__ import annotations

import json
import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from swift_hapi.protocol.errors import CONTENT_TYPE, HapiError
from swift_hapi.protocol.headers import TRANS_ID

_PIECE = 256 << 10
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


def printable(text: str) -> str:
    """``text`` fit for one line of a log."""
    return _UNPRINTABLE.sub("?", text)[:256]


def trans_id(request: Request) -> str:
    """The proxy's transaction id; ``-`` when there is none."""
    return printable(request.headers.get(TRANS_ID, "-"))


def close_if_unread(request: Request, response: Response) -> Response:
    """Have the connection closed unless the body has been read.

    What the client still sends would be taken for its next request.
    """
    announced = request.headers.get("Content-Length", "0") != "0"
    chunked = "Transfer-Encoding" in request.headers
    if (announced or chunked) and not getattr(request.state, "body_read", False):
        response.headers["Connection"] = "close"
    return response


def problem(request: Request, error: HapiError) -> Response:
    """The RFC 9457 document of ``error``, with the transaction id as a member."""
    # Not into error.members: requests that shared a failed model load share its error.
    document = {**error.problem(), "trans_id": trans_id(request)}
    body = json.dumps(document, sort_keys=True).encode() + b"\n"
    response = Response(body, status_code=error.status, media_type=CONTENT_TYPE)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return close_if_unread(request, response)


class NoBody(Response):
    """Headers only: a 304, or the answer to HEAD, whose length nobody knows without the work."""

    def __init__(self, headers: dict[str, str], status_code: int = 200):
        super().__init__(status_code=status_code, headers=headers)
        del self.headers["content-length"]


class Pieces(Response):
    """A body sent in pieces, so that not all of it is copied into the transport's buffer.

    A client that reads slowly is waited for between the pieces.

    :param headers: with the ``Content-Length`` of all pieces together
    """

    def __init__(self, pieces: list[bytes | memoryview], headers: dict[str, str]):
        super().__init__(headers=headers)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        for whole in self._pieces:
            view = memoryview(whole)
            for start in range(0, len(view), _PIECE):
                piece = bytes(view[start : start + _PIECE])
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        # This one waits until the client has taken nearly all, and so do place and memory.
        await send({"type": "http.response.body", "body": b"", "more_body": False})
