"""A scripted engine on a unix socket, a scripted Swift, and a way to call the filter."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import logging
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path

from swift.common.swob import Request

from swift_hapi.middleware.config import FilterConfig
from swift_hapi.middleware.filter import HapiMiddleware
from swift_hapi.protocol.errors import CONTENT_TYPE, HapiError
from swift_hapi.protocol.headers import FEATURES_TYPE

MODEL_BYTES = b"an extractor file"
MODEL_HEX = hashlib.sha256(MODEL_BYTES).hexdigest()
MODEL = f"sha256:{MODEL_HEX}"
MODEL_MD5 = hashlib.md5(MODEL_BYTES).hexdigest()
FEATURES = b"features" * 1000


@dataclass
class Received:
    """One request that the engine has seen; ``body`` None when it did not ask for it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None = None
    complete: bool = False


class Peer:
    """The engine's end of one connection, in a thread."""

    def __init__(self, connection: socket.socket, received: Received):
        self.connection = connection
        self.file = connection.makefile("rb")
        self.received = received

    def read_body(self) -> bytes:
        """Admit, and read until Content-Length or the end."""
        self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(self.received.headers["content-length"])
        body = self.file.read(length)
        self.received.body = body
        self.received.complete = len(body) == length
        return body

    def send(self, data: bytes) -> None:
        # A filter that has left is looked at from its own side.
        with contextlib.suppress(OSError):
            self.connection.sendall(data)

    def answer(self, status: str, headers: dict[str, str], body: bytes = b"") -> None:
        headers = {"Content-Length": str(len(body)), "Connection": "close", **headers}
        lines = [f"HTTP/1.1 {status}", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
        if self.received.method == "HEAD":
            body = b""
        self.send("\r\n".join(lines).encode("latin-1") + body)

    def problem(self, error: HapiError) -> None:
        extra = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        self.answer(f"{error.status} Error", {"Content-Type": CONTENT_TYPE, **extra}, error.body())

    def features(self, body: bytes = FEATURES, **headers: str) -> None:
        self.answer("200 OK", {"Content-Type": FEATURES_TYPE, "ETag": 'W/"f"', **headers}, body)


class FakeEngine:
    """Calls ``script(peer)`` for each connection after its request's head.

    By default it knows the model as the account's, admits everything, and answers
    :data:`FEATURES`; methods can be replaced one by one.
    """

    def __init__(self, path: Path):
        self.requests: list[Received] = []
        self.known = {MODEL_HEX: (MODEL, MODEL_MD5, "account")}
        self.on_features = self.features
        self.on_model = self.model
        self.on_upload = self.upload
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def paths(self) -> list[str]:
        return [f"{r.method} {r.path}" for r in self.requests]

    def features(self, peer: Peer) -> None:
        if peer.received.method == "HEAD":
            peer.features()
        else:
            peer.read_body()
            peer.features()

    def model(self, peer: Peer) -> None:
        known = self.known.get(peer.received.path.rpartition("/")[2])
        if known is None:
            peer.answer("404 Not Found", {"Content-Type": CONTENT_TYPE})
            return
        names = ("X-Hapi-Model", "X-Hapi-Model-Md5", "X-Hapi-Model-Scope")
        peer.answer("200 OK", dict(zip(names, known, strict=True)))

    def upload(self, peer: Peer) -> None:
        body = peer.read_body()
        found = hashlib.sha256(body).hexdigest()
        asked = peer.received.path.rpartition("/")[2]
        if peer.received.method == "PUT" and found != asked:
            document = {"type": "urn:hapi:error:model-mismatch", "status": 409, "detail": "no"}
            headers = {"Content-Type": CONTENT_TYPE}
            peer.answer("409 Conflict", headers, json.dumps(document).encode())
            return
        self.known[found] = (f"sha256:{found}", hashlib.md5(body).hexdigest(), "account")
        peer.answer("201 Created", {"X-Hapi-Model": f"sha256:{found}"})

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            peer = Peer(connection, Received("", "", {}))
            start = peer.file.readline().decode("latin-1").split()
            if len(start) < 2:
                return
            head = http.client.parse_headers(peer.file)
            peer.received.method, peer.received.path = start[:2]
            peer.received.headers = {k.lower(): v for k, v in head.items()}
            self.requests.append(peer.received)
            if start[1].startswith("/v1/features"):
                self.on_features(peer)
            elif start[0] == "HEAD":
                self.on_model(peer)
            else:
                self.on_upload(peer)
            peer.file.close()


@dataclass
class Stored:
    """What lies at a path of the scripted Swift: ``pieces`` may be any iterable of bytes."""

    body: bytes = b""
    status: str = "200 OK"
    headers: dict[str, str] = field(default_factory=dict)
    pieces: object = None


class FakeSwift:
    """The app right of the filter. Counts bodies that are still open."""

    def __init__(self):
        self.objects: dict[str, Stored] = {}
        self.calls: list[dict] = []
        self.open = 0

    def paths(self) -> list[str]:
        return [f"{env['REQUEST_METHOD']} {env['PATH_INFO']}" for env in self.calls]

    def __call__(self, env, start_response):
        self.calls.append(env)
        authorize = env.get("swift.authorize")
        denied = authorize(Request(env)) if authorize else None
        if denied:
            return denied(env, start_response)
        stored = self.objects.get(env["PATH_INFO"])
        if stored is None:
            start_response("404 Not Found", [("Content-Length", "9"), ("X-Swift", "yes")])
            return _Body(self, [b"not found"])
        headers = {
            "Content-Length": str(len(stored.body)),
            "Etag": hashlib.md5(stored.body).hexdigest(),
            **stored.headers,
        }
        start_response(stored.status, [(k, v) for k, v in headers.items() if v])
        if env["REQUEST_METHOD"] == "HEAD":
            return _Body(self, [])
        return _Body(self, stored.pieces if stored.pieces is not None else [stored.body])


class _Body:
    def __init__(self, swift: FakeSwift, pieces):
        self._swift, self._pieces, self._closed = swift, pieces, False
        swift.open += 1

    def __iter__(self):
        return iter(self._pieces)

    def close(self):
        if not self._closed:
            self._closed = True
            self._swift.open -= 1


class Logger(logging.LoggerAdapter):
    """Swift's logger as far as the filter uses it; keeps what it is told."""

    def __init__(self):
        super().__init__(logging.getLogger("test-hapi"), {})
        self.lines: list[str] = []
        self.counted: list[str] = []
        self.logger.setLevel(logging.DEBUG)
        self.logger.handlers = [_Lines(self.lines)]
        self.logger.propagate = False

    def increment(self, metric):
        self.counted.append(metric)

    def timing_since(self, metric, _since):
        self.counted.append(metric)

    def update_stats(self, metric, amount):
        self.counted.append(f"{metric}+{amount}")


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]):
        super().__init__()
        self._lines = lines

    def emit(self, record):
        self._lines.append(record.getMessage())


HEADERS = {
    "X-Hapi-Model": MODEL,
    "X-Hapi-Split": "avgpool",
    "X-Hapi-Transform": "resize=8, crop=8",
    "X-Auth-Token": "AUTH_tksecret",
}
USER = {"REMOTE_USER": "test,test:tester,AUTH_test", "swift.trans_id": "tx1"}


class House:
    """Filter, scripted engine and scripted Swift together."""

    def __init__(self, directory: Path, **options):
        self.engine = FakeEngine(directory / "engine.sock")
        self.swift = FakeSwift()
        self.swift.objects["/v1/AUTH_test/c/o"] = Stored(b"image" * 1000)
        self.swift.objects[f"/v1/AUTH_test/hapi-models/{MODEL_HEX}.safetensors"] = Stored(
            MODEL_BYTES
        )
        self.logger = Logger()
        config = FilterConfig(engine=str(directory / "engine.sock"), **options)
        self.filter = HapiMiddleware(self.swift, config, self.logger)

    def ask(self, method="GET", path="/v1/AUTH_test/c/o", env=None, headers=None):
        """(status, headers by lower-case name, body) of one request."""
        headers = {**HEADERS, **(headers or {})}
        request = Request.blank(
            path,
            environ={"REQUEST_METHOD": method, **(USER if env is None else env)},
            headers={k: v for k, v in headers.items() if v is not None},
        )
        status, found, body = request.call_application(self.filter)
        try:
            data = b"".join(body)
        finally:
            getattr(body, "close", lambda: None)()
        return int(status.split()[0]), {k.lower(): v for k, v in found}, data

    def problem(self, *args, **kwargs):
        """(status, name, document) of a request that is answered with a problem."""
        status, headers, body = self.ask(*args, **kwargs)
        assert headers["content-type"] == CONTENT_TYPE, (status, body)
        document = json.loads(body)
        assert document["status"] == status
        assert int(headers["content-length"]) == len(body)
        return status, document["type"].removeprefix("urn:hapi:error:"), document
