"""Clients as they are: they take their features, and come back when they are told to."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

TIMEOUT = 300.0
ATTEMPTS = 60
_RETRYABLE = (429, 503, 504)


@dataclass(frozen=True)
class Account:
    """A user who is logged in."""

    storage_url: str
    token: str

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.storage_url).netloc, timeout=TIMEOUT)

    def path(self, *names: str) -> str:
        return "/".join([urlsplit(self.storage_url).path, *names])

    def put(self, *names: str, body: bytes = b"") -> None:
        """:raises RuntimeError: Swift refuses"""
        connection = self.connect()
        connection.request("PUT", self.path(*names), body, {"X-Auth-Token": self.token})
        response = connection.getresponse()
        response.read()
        connection.close()
        if response.status not in (201, 202):
            raise RuntimeError(f"PUT {'/'.join(names)}: {response.status}")


@dataclass(frozen=True)
class Target:
    """One feature request."""

    account: Account
    names: tuple[str, ...]
    headers: dict[str, str]


@dataclass
class Result:
    """``refusals`` are (status, problem) of the attempts before the last one; an attempt that
    broke has status 0."""

    status: int = 0
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    refusals: list[tuple[int, str]] = field(default_factory=list)

    @property
    def problem(self) -> str:
        return problem_of(self.headers, self.body)


def problem_of(headers: dict[str, str], body: bytes) -> str:
    """The name of the problem, empty when the answer is none."""
    if not headers.get("content-type", "").startswith("application/problem+json"):
        return ""
    return json.loads(body)["type"].removeprefix("urn:hapi:error:")


class Client:
    """One connection, kept open. ``stop`` makes it give up waiting between attempts."""

    def __init__(self, attempts: int = ATTEMPTS, stop: threading.Event | None = None):
        self._connection: http.client.HTTPConnection | None = None
        self._attempts = attempts
        self._stop = stop or threading.Event()

    def ask(self, target: Target) -> Result:
        """Until it is answered for good; seconds count from the first attempt."""
        result, began = Result(), time.perf_counter()
        for attempt in range(self._attempts):
            status, headers, body = self._once(target)
            result.status, result.headers, result.body = status, headers, body
            last = attempt + 1 == self._attempts
            if (status and status not in _RETRYABLE) or last or self._stop.is_set():
                break
            result.refusals.append((status, problem_of(headers, body) if status else "broken"))
            after = min(float(headers.get("retry-after", 1)), 2.0)
            self._stop.wait(after * random.uniform(0.5, 1.0))
        result.seconds = time.perf_counter() - began
        return result

    def _once(self, target: Target) -> tuple[int, dict[str, str], bytes]:
        try:
            if self._connection is None:
                self._connection = target.account.connect()
            headers = {"X-Auth-Token": target.account.token, **target.headers}
            self._connection.request("GET", target.account.path(*target.names), headers=headers)
            response = self._connection.getresponse()
            body = response.read()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, body
        except (OSError, http.client.HTTPException):
            self.close()
            return 0, {}, b""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def together(targets: Sequence[Target], clients: int) -> tuple[list[Result], float]:
    """Results in the order of ``targets``, ``clients`` of them at a time; and the seconds."""
    local = threading.local()

    def ask(target: Target) -> Result:
        if not hasattr(local, "client"):
            local.client = Client()
        return local.client.ask(target)

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        results = list(pool.map(ask, targets))
    return results, time.perf_counter() - began


class EngineConnection(http.client.HTTPConnection):
    """Over the engine's socket, without Swift."""

    def __init__(self, path: str):
        super().__init__("engine", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self._path)


def engine_status(path: str) -> dict:
    """:raises OSError: nobody answers"""
    connection = EngineConnection(path)
    try:
        connection.request("GET", "/v1/status")
        return json.loads(connection.getresponse().read())
    except http.client.HTTPException as error:
        raise OSError(str(error)) from None
    finally:
        connection.close()
