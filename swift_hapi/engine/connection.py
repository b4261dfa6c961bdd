"""uvicorn's HTTP protocol, with a way to learn that a client left before it was asked to send.

ASGI tells an application of a disconnect through ``receive()``; but uvicorn takes the first
``receive()`` as the wish to read the body and sends ``100 Continue``. A request that still waits
for its admission must not do that. So every request's ``scope["state"]`` holds the connection's
:class:`Connection`.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

STATE = "connection"


class Connection:
    """``gone`` is set when the client has closed; ``abort`` closes without flushing."""

    def __init__(self):
        self.gone = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    def made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class EngineProtocol(HttpToolsProtocol):
    """One per connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._connection = Connection()
        self._connection.made(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.gone.set()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][STATE] = self._connection

    def on_message_complete(self) -> None:
        super().on_message_complete()
        # uvicorn stops reading while more than 64 KiB of a body wait for the application, and
        # goes on at the next receive(). After the last piece there is none, and a client that
        # leaves would not be noticed.
        self.flow.resume_reading()
