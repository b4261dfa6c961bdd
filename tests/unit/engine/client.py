"""A small HTTP client of the engine's socket, as the proxy filter speaks to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 60


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path):
        super().__init__("engine", timeout=TIMEOUT)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes
    continued: bool = False  #: a 100 came before

    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        """Name of the problem; fails when the body is no problem document."""
        assert self.headers["Content-Type"] == "application/problem+json", self
        return self.json()["type"].removeprefix("urn:hapi:error:")


def ask(path: Path, method: str, url: str, body: bytes | None = None, headers=None) -> Answer:
    """One request on a connection of its own, the body sent without waiting."""
    connection = UnixConnection(path)
    try:
        # An early answer closes the connection, and is there to be read all the same.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, url, body, headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


class Expecting:
    """A request whose body waits for ``100 Continue``; raw, so that every byte is seen."""

    def __init__(self, path: Path, method: str, url: str, length: int, headers=None):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT)
        self._socket.connect(str(path))
        lines = [f"{method} {url} HTTP/1.1", "Host: engine", f"Content-Length: {length}"]
        lines += ["Expect: 100-continue"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        self._file = self._socket.makefile("rb")
        self._method = method

    def __enter__(self) -> Expecting:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def wait_for_100(self) -> None:
        line = self._file.readline()
        assert line == b"HTTP/1.1 100 Continue\r\n", line
        assert self._file.readline() == b"\r\n"

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> Answer:
        """The final answer; the connection must have been closed when it says so."""
        status = int(self._file.readline().split()[1])
        headers = http.client.parse_headers(self._file)
        body = self._file.read(int(headers.get("Content-Length", 0)))
        if headers.get("Connection") == "close":
            assert self._file.read() == b""
        return Answer(status, headers, body)


def ask_expecting(path: Path, method: str, url: str, body: bytes, headers=None) -> Answer:
    """One request with ``Expect``; the body is sent if the engine wants it."""
    with Expecting(path, method, url, len(body), headers) as request:
        request.wait_for_100()
        request.send(body)
        answer = request.answer()
        return Answer(answer.status, answer.headers, answer.body, continued=True)
