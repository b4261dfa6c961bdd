"""A small Swift over HTTP that keeps everything in memory: auth v1 and Keystone v3, tokens that
expire, listings of a chosen length. For what a real Swift on this machine cannot show."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Stored:
    body: bytes
    content_type: str
    meta: dict[str, str] = field(default_factory=dict)

    @property
    def etag(self) -> str:
        return hashlib.md5(self.body).hexdigest()


@dataclass
class MemorySwift:
    """``seen`` counts requests by (method, path without query).

    :param delay: seconds before a listing is answered
    :param tls: speak https
    :param lagging: the account does not know what its containers hold
    """

    listing_limit: int = 10_000
    token_life: float = 3600.0
    delay: float = 0.0
    lagging: bool = False
    containers: dict[str, dict[str, Stored]] = field(default_factory=dict)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __post_init__(self):
        self.seen: Counter = Counter()
        self.info: dict = {"swift": {}}
        self.tokens: dict[str, float] = {}
        self.keystone: list[dict] = []
        #: most names in the next listings, whatever was asked for
        self.short_pages: list[int] = []
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if self.tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def issue(self) -> str:
        with self.lock:
            token = f"tk{len(self.tokens) + 1}"
            self.tokens[token] = time.monotonic() + self.token_life
            return token

    def put(self, container: str, name: str, body: bytes, content_type: str = "x/y") -> None:
        self.containers.setdefault(container, {})[name] = Stored(body, content_type)

    def revoke(self) -> None:
        """Every token given out so far is refused from now on."""
        with self.lock:
            self.tokens = dict.fromkeys(self.tokens, 0.0)


def _size(stored: Stored) -> int:
    return len(stored.body)


def _handler(swift: MemorySwift):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_args):
            pass

        def handle_any(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            query = {k: v[-1] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
            with swift.lock:
                swift.seen[self.command, unquote(parts.path)] += 1
            if parts.path == "/auth":
                return self.auth_v1()
            if parts.path.startswith("/identity"):
                return self.identity(parts.path, body)
            if parts.path == "/info":
                if not swift.info:
                    return self.answer(403)  # As when the operator does not publish it.
                return self.answer(200, json.dumps(swift.info).encode())
            token = self.headers.get("X-Auth-Token", "")
            if swift.tokens.get(token, 0.0) <= time.monotonic():
                return self.answer(401)
            names = parts.path.removeprefix("/v1/AUTH_test").lstrip("/").split("/", 1)
            container = unquote(names[0])
            if not container:
                return self.account(query)
            if len(names) == 1:
                return self.container(container, query)
            return self.object(container, unquote(names[1]), body)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any

        def answer(self, status, body=b"", **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def auth_v1(self):
            if self.headers.get("X-Auth-Key") != "testing":
                return self.answer(401)
            return self.answer(
                200,
                X_Auth_Token=swift.issue(),
                X_Storage_Url=f"{swift.url}/v1/AUTH_test",
                X_Auth_Token_Expires=str(int(swift.token_life)),
            )

        def identity(self, path, body):
            if self.command == "GET":
                version = {
                    "id": "v3.14", "status": "stable",
                    "links": [{"rel": "self", "href": f"{swift.url}/identity/v3/"}],
                }  # fmt: skip
                return self.answer(200, json.dumps({"version": version}).encode())
            request = json.loads(body)["auth"]
            swift.keystone.append(request)
            identity = request["identity"]
            if "password" in identity:
                good = identity["password"]["user"]["password"] == "testing"
            else:
                good = identity["application_credential"]["secret"] == "testing"
            if not good:
                return self.answer(401, b'{"error": {"message": "no", "code": 401}}')
            expires = time.strftime(
                "%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() + swift.token_life)
            )
            endpoints = [
                {"interface": i, "region": r, "region_id": r, "id": i + r,
                 "url": f"{swift.url}/v1/AUTH_test" if r == "one" else "http://127.0.0.1:9/v1/x"}
                for i in ("public", "internal") for r in ("one", "two")
            ]  # fmt: skip
            token = {
                "expires_at": expires, "issued_at": "2020-01-01T00:00:00.000000Z",
                "methods": identity["methods"], "user": {"id": "u", "name": "u"},
                "project": {"id": "test", "name": "p", "domain": {"id": "default", "name": "D"}},
                "catalog": [
                    {"type": "object-store", "name": "swift", "id": "s", "endpoints": endpoints}
                ],
            }  # fmt: skip
            text = json.dumps({"token": token}).encode()
            return self.answer(201, text, X_Subject_Token=swift.issue())

        def account(self, query):
            rows = [
                {"name": name, "count": 0 if swift.lagging else len(objects),
                 "bytes": 0 if swift.lagging else sum(map(_size, objects.values()))}
                for name, objects in sorted(swift.containers.items())
            ]  # fmt: skip
            return self.listing(rows, query)

        def listing(self, rows, query):
            prefix, marker = query.get("prefix", ""), query.get("marker", "")
            limit = min(swift.listing_limit, int(query.get("limit", 10_000)))
            time.sleep(swift.delay)
            with swift.lock:
                if swift.short_pages:
                    limit = min(limit, swift.short_pages.pop(0))
            found = [
                row for row in rows
                if row["name"].startswith(prefix) and row["name"].encode() > marker.encode()
            ]  # fmt: skip
            return self.answer(
                200, json.dumps(found[:limit]).encode(), Content_Type="application/json"
            )

        def container(self, name, query):
            if self.command == "PUT":
                swift.containers.setdefault(name, {})
                return self.answer(201)
            if name not in swift.containers:
                return self.answer(404)
            if self.command == "DELETE":
                if swift.containers[name]:
                    return self.answer(409)
                del swift.containers[name]
                return self.answer(204)
            if self.command == "HEAD":
                objects = swift.containers[name].values()
                counts = {"Object_Count": len(objects), "Bytes_Used": sum(map(_size, objects))}
                return self.answer(
                    204, **{f"X_Container_{key}": str(n) for key, n in counts.items()}
                )
            rows = [
                {"name": key, "hash": o.etag, "bytes": len(o.body), "content_type": o.content_type}
                for key, o in sorted(swift.containers[name].items(), key=lambda i: i[0].encode())
            ]
            return self.listing(rows, query)

        def object(self, container, name, body):
            objects = swift.containers.get(container)
            if objects is None:
                return self.answer(404)
            if self.command == "PUT":
                meta = {k: v for k, v in self.headers.items() if k.startswith("X-Object-Meta-")}
                objects[name] = Stored(body, self.headers.get("Content-Type", ""), meta)
                return self.answer(201, ETag=objects[name].etag)
            found = objects.get(name)
            if found is None:
                return self.answer(404)
            if self.command == "DELETE":
                del objects[name]
                return self.answer(204)
            wanted = self.headers.get("If-Match")
            if wanted is not None and wanted.strip('"') != found.etag:
                return self.answer(412)
            return self.answer(200, found.body, ETag=f'"{found.etag}"', **found.meta)

    return Handler
