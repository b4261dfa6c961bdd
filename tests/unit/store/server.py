"""A tiny HTTP server that answers as scripted: for faults that a real Swift does not make."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Reply:
    """``cut_short`` closes the connection before the last byte."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut_short: bool = False


class ScriptedSwift:
    """``/auth`` hands out tokens 1, 2, ...; everything else pops the next of ``replies``."""

    def __init__(self):
        self.replies: deque[Reply] = deque()
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.tokens = 0
        self.token_life: str | None = None
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_args):
                pass

            def _answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.path == "/auth":
                    script.tokens += 1
                    headers = {
                        "X-Auth-Token": f"tk{script.tokens}",
                        "X-Storage-Url": f"{script.url}/v1/AUTH_test",
                    }
                    if script.token_life is not None:
                        headers["X-Auth-Token-Expires"] = script.token_life
                    if self.headers.get("X-Auth-Key") != "testing":
                        reply = Reply(401)
                    else:
                        reply = Reply(200, b"", headers)
                else:
                    script.seen.append((self.command, self.path, dict(self.headers), body))
                    reply = script.replies.popleft()
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in reply.headers:
                    self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(reply.body[:-1] if reply.cut_short else reply.body)
                if reply.cut_short:
                    self.close_connection = True

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
