"""Notices that the client has gone while its request waits.

A WSGI application learns that its client has left only when it writes. A request that waits for
compute writes nothing for seconds, so a greenthread watches the connection instead.
"""

from __future__ import annotations

import select
from collections.abc import Callable

from swift_hapi.middleware.green import patcher, sleep, spawn, trampoline

#: Seconds between looks at a connection on which the client has already sent its next request:
#: the hub would report it readable at once, for ever.
PIPELINED_INTERVAL = 1.0

_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL


class ClientGone(Exception):
    """The client has closed its connection; nobody waits for the answer."""


class ClientWatch:
    """Watches the client's connection between ``__enter__`` and ``__exit__``.

    It only polls the socket's state and reads nothing, so it works over TLS and leaves bytes of
    a pipelined request where they are. A client that shuts down its sending side counts as gone.

    :param env: WSGI environment; without eventlet's input nothing is watched
    """

    def __init__(self, env: dict):
        get_socket = getattr(env.get("eventlet.input"), "get_socket", None)
        self._socket = get_socket() if get_socket else None
        self._thread = None
        self._abort: Callable[[], None] | None = None
        self.gone = False

    def __enter__(self) -> ClientWatch:
        if self._socket is not None and self._socket.fileno() >= 0:
            self._thread = spawn(self._watch)
        return self

    def __exit__(self, *_exc) -> None:
        # Before the server reads the connection's next request: the hub allows one reader.
        if self._thread is not None:
            self._thread.kill()

    def check(self) -> None:
        """:raises ClientGone: when the client has gone"""
        if self.gone:
            raise ClientGone

    def on_gone(self, abort: Callable[[], None] | None) -> None:
        """Have ``abort`` called, in another greenthread, when the client goes (None: nothing).

        :raises ClientGone: when it has gone already
        """
        self.check()
        self._abort = abort

    def _watch(self) -> None:
        poll = patcher.original("select").poll()
        poll.register(self._socket.fileno(), select.POLLIN | _GONE)
        while True:
            trampoline(self._socket.fileno(), read=True)
            events = poll.poll(0)
            if any(event & _GONE for _fd, event in events):
                break
            if events:
                sleep(PIPELINED_INTERVAL)
        self.gone = True
        if self._abort is not None:
            self._abort()
