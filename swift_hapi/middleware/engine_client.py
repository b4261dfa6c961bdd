"""HTTP to the engine over its unix socket, one connection per request.

A body is announced with ``Expect: 100-continue`` (RFC 9110 section 10.1.1): the engine says
first whether it admits the request, and only then do the object's bytes move.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from swift.common.bufferedhttp import BufferedHTTPConnection

from swift_hapi.middleware.client_watch import ClientWatch
from swift_hapi.middleware.green import Timeout, green_http_client, sleep, socket
from swift_hapi.protocol.errors import CONTENT_TYPE, DeadlineExceeded, EngineUnavailable

#: Seconds that the engine gets on top of what it allows itself, before it counts as hung.
GRACE = 5.0
#: The same for its answer to the headers of a request with a body: before it says yes it may have
#: to load the model from its disk.
ADMISSION_GRACE = 30.0
#: Seconds after which a client may ask again when the engine is down.
RETRY_AFTER = 2
#: Seconds between attempts while the engine's queue of connections is full.
CONNECT_INTERVAL = 0.02
#: Seconds without a byte in the middle of an answer, which the engine has complete in memory.
STALL = 60.0
CHUNK = 64 * 1024
MAX_PROBLEM_BYTES = 64 * 1024
_CONTINUE = 100
#: What a broken or foreign peer can make http.client raise.
_FAILURES = (
    OSError,
    ValueError,
    green_http_client.HTTPException,
    http.client.HTTPException,  # Swift parses the headers of a 100 with the original
)


def unavailable(why: str) -> EngineUnavailable:
    return EngineUnavailable(why, retry_after=RETRY_AFTER)


class ShortAnswer(Exception):
    """The engine's body ended early. Raised while the answer is on its way to the client: the
    server closes the connection, and the client sees fewer bytes than announced."""


class _Connection(BufferedHTTPConnection):
    def __init__(self, socket_path: str):
        super().__init__("localhost")
        self._socket_path = socket_path

    def connect(self):
        self._connected_time = time.time()
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Where the listener's queue is full, a unix socket says EAGAIN and there is nothing to
        # wait on: eventlet's own connect would spin.
        self.sock.setblocking(False)
        while (code := self.sock.connect_ex(self._socket_path)) == errno.EAGAIN:
            sleep(CONNECT_INTERVAL)
        if code:
            raise OSError(code, os.strerror(code))
        self.sock.setblocking(True)


class EngineAnswer:
    """Status, headers and unread body of one answer; close it, and the connection goes."""

    def __init__(self, connection: _Connection, response):
        self._connection = connection
        self._response = response
        self.status: int = response.status

    def header(self, name: str) -> str | None:
        return self._response.getheader(name)

    @property
    def length(self) -> int | None:
        value = self.header("Content-Length")
        return int(value) if value and value.isdigit() else None

    def problem(self) -> dict | None:
        """Read the body as a problem document; None when it is none."""
        if (self.header("Content-Type") or "").split(";")[0].strip() != CONTENT_TYPE:
            return None
        with Timeout(GRACE, unavailable("the engine does not finish its answer")):
            try:
                document = json.loads(self._response.read(MAX_PROBLEM_BYTES))
            except _FAILURES:
                return None
        return document if isinstance(document, dict) else None

    def chunks(self) -> Iterator[bytes]:
        """The body, exactly Content-Length bytes.

        :raises ShortAnswer: the engine died or stopped before that
        """
        missing = self.length
        while missing:
            try:
                with Timeout(STALL, ShortAnswer(f"engine stalled, {missing} bytes missing")):
                    chunk = self._response.read(min(CHUNK, missing))
            except _FAILURES as err:
                raise ShortAnswer(f"engine failed, {missing} bytes missing: {err!r}") from err
            if not chunk:
                raise ShortAnswer(f"engine closed, {missing} bytes missing")
            missing -= len(chunk)
            yield chunk

    def close(self) -> None:
        self._response.close()
        self._connection.close()


class EngineClient:
    """Speaks to one engine.

    :param socket_path: the engine's unix socket
    :param connect_timeout: seconds for the connection
    :param admission_timeout: seconds within which the engine promises an answer to headers
    """

    def __init__(self, socket_path: str, connect_timeout: float, admission_timeout: float):
        self._socket_path = socket_path
        self._connect_timeout = connect_timeout
        self._admission_timeout = admission_timeout

    def head(
        self, path: str, headers: dict[str, str], watch: ClientWatch, *, deadline: float
    ) -> EngineAnswer:
        """Ask without a body.

        :param deadline: on the clock of :func:`time.monotonic`
        :raises EngineUnavailable: no engine, no answer in time, or no HTTP
        :raises DeadlineExceeded: no answer by ``deadline`` (plus grace), before that time
        :raises ClientGone: see :class:`ClientWatch`
        """
        with self._connection(watch) as connection:
            self._send_head(connection, "HEAD", path, headers)
            with self._answering(deadline):
                response = connection.getresponse()
            return EngineAnswer(connection, response)

    def send(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        length: int,
        chunks: Iterable[bytes],
        watch: ClientWatch,
        *,
        deadline: float,
    ) -> EngineAnswer:
        """Ask for admission, send the body when it is granted, wait for the answer.

        ``chunks`` is not touched when the engine answers without having seen it.

        :param length: of the body, in bytes
        :param deadline: on the clock of :func:`time.monotonic`, for everything
        :raises EngineUnavailable: no engine, no answer to the headers in time, no HTTP, or it
            died
        :raises DeadlineExceeded: the engine has not answered by ``deadline`` (plus grace)
        :raises ClientGone: see :class:`ClientWatch`
        :raises SourceTruncated: whatever ``chunks`` raises; the engine then sees a broken body
        """
        with self._connection(watch) as connection:
            complete = {**headers, "Content-Length": str(length), "Expect": "100-continue"}
            self._send_head(connection, method, path, complete)
            with self._answering(deadline):
                response = connection.getexpect()
            if response.status != _CONTINUE:
                return EngineAnswer(connection, response)
            self._pump(connection, chunks, watch, deadline)
            with _until(deadline):
                response = connection.getresponse()
            return EngineAnswer(connection, response)

    def _answering(self, deadline: float) -> Timeout:
        seconds = self._admission_timeout + ADMISSION_GRACE
        if time.monotonic() + seconds > deadline + GRACE:
            return _until(deadline)
        return Timeout(seconds, unavailable("the engine does not answer"))

    @contextmanager
    def _connection(self, watch: ClientWatch):
        """A connection that closes when the block fails, or at once when the client goes."""
        connection = _Connection(self._socket_path)
        try:
            with Timeout(self._connect_timeout, unavailable("the engine does not accept")):
                connection.connect()
            # Shutting down, unlike closing, is safe while another greenthread waits in it: that
            # one then reads an end of file.
            sock = connection.sock
            watch.on_gone(lambda: _shutdown(sock))
            yield connection
        except _FAILURES as err:
            connection.close()
            watch.check()
            raise unavailable(f"no answer from the engine: {type(err).__name__}") from err
        except BaseException:
            connection.close()
            raise
        finally:
            if not watch.gone:
                watch.on_gone(None)

    @staticmethod
    def _send_head(connection, method: str, path: str, headers: dict[str, str]) -> None:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()

    @staticmethod
    def _pump(connection, chunks: Iterable[bytes], watch: ClientWatch, deadline: float) -> None:
        for chunk in chunks:
            watch.check()
            if time.monotonic() >= deadline + GRACE:
                raise DeadlineExceeded("the object's bytes do not arrive within the deadline")
            try:
                with _until(deadline):
                    connection.send(chunk)
            except OSError:
                # The engine has answered early and closed: its answer is still to be read. If
                # there is none, reading it says so.
                watch.check()
                return
        watch.check()


def _until(deadline: float) -> Timeout:
    seconds = max(deadline + GRACE - time.monotonic(), 0.001)
    return Timeout(seconds, DeadlineExceeded("the engine has not answered within the deadline"))


def _shutdown(sock) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
