"""Request bodies: announced length first, then the bytes, in blocks."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from starlette.requests import Request

from swift_hapi.engine.guard import ClientGone
from swift_hapi.graph.allocator import own_memory
from swift_hapi.protocol.errors import BadHeader, TooLarge

_BLOCK = 1 << 20


def content_length(request: Request, most: int, what: str) -> int:
    """The announced length.

    :raises BadHeader: there is none: admission must know how much will come
    :raises TooLarge: it is more than ``most``
    """
    text = request.headers.get("Content-Length", "")
    if not re.fullmatch(r"\d{1,18}", text):
        raise BadHeader(f"Content-Length: {text!r}: the length of the {what} must be announced")
    if int(text) > most:
        raise TooLarge(f"{what} of {text} bytes is larger than the {most} allowed")
    return int(text)


async def read_body(request: Request, length: int) -> memoryview:
    """A body of ``length`` bytes, in memory that goes back to the system with it.

    Asking for its first piece is what makes the server send ``100 Continue``.

    :raises ClientGone: the body ends before its announced length
    """
    view, at, more = own_memory(length), 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece, more = message.get("body", b""), message.get("more_body", False)
        view[at : at + len(piece)] = piece
        at += len(piece)
    request.state.body_read = True
    return view


async def blocks(request: Request) -> AsyncIterator[list[bytes]]:
    """The body in lists of chunks of about a mebibyte.

    :raises ClientGone: the body ends before its announced length
    """
    chunks, size, more = [], 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk, more = message.get("body", b""), message.get("more_body", False)
        if chunk:
            chunks.append(chunk)
            size += len(chunk)
        if chunks and (size >= _BLOCK or not more):
            yield chunks
            chunks, size = [], 0
    request.state.body_read = True
