"""Ask servers whether they serve; nothing but the standard library."""

from __future__ import annotations

import http.client
import secrets
import socket
from pathlib import Path
from urllib.parse import urlsplit

from swift_hapi.cluster.errors import ClusterError

_TIMEOUT = 10.0  #: seconds for a request that does some work
#: seconds for a sign of life; asked again and again, so that a failed server is noticed meanwhile
_SIGN_TIMEOUT = 2.0


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout: float = _SIGN_TIMEOUT):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self.timeout)
            sock.connect(str(self._path))
        except OSError:
            sock.close()
            raise
        self.sock = sock


def status_of(connection: http.client.HTTPConnection, path: str) -> int | None:
    """Status of a GET, or None when nobody answers."""
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def healthy(host: str, port: int) -> bool:
    """Whether a Swift server with the healthcheck filter answers."""
    connection = http.client.HTTPConnection(host, port, timeout=_SIGN_TIMEOUT)
    return status_of(connection, "/healthcheck") == 200


def engine_ready(path: Path) -> bool:
    return status_of(UnixConnection(path), "/readyz") == 200


def memcached_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_SIGN_TIMEOUT) as sock:
            sock.sendall(b"version\r\n")
            return sock.recv(64).startswith(b"VERSION")
    except OSError:
        return False


def authenticate(auth_url: str, user: str, key: str) -> tuple[str, str]:
    """Log in the auth v1 way.

    :returns: (storage URL, token)
    :raises ClusterError: refused, or nobody answers
    """
    url = urlsplit(auth_url)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=_TIMEOUT)
    try:
        connection.request("GET", url.path, headers={"X-Auth-User": user, "X-Auth-Key": key})
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise ClusterError(f"{auth_url} answers {response.status} to {user}")
        return response.headers["X-Storage-Url"], response.headers["X-Auth-Token"]
    except (OSError, http.client.HTTPException) as error:
        raise ClusterError(f"{auth_url} does not answer: {error}") from error
    finally:
        connection.close()


def round_trip(storage_url: str, token: str) -> str | None:
    """Put, get and delete a container and an object.

    :returns: None when all went well, else what did not
    """
    url = urlsplit(storage_url)
    name = "hapi-probe-" + secrets.token_hex(4)
    container = f"{url.path}/{name}"
    steps = (
        ("PUT", container, b"", 201),
        ("PUT", f"{container}/o", b"ready?", 201),
        ("GET", f"{container}/o", b"", 200),
        ("DELETE", f"{container}/o", b"", 204),
        ("DELETE", container, b"", 204),
    )
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=_TIMEOUT)
    try:
        for method, path, body, expected in steps:
            connection.request(method, path, body=body, headers={"X-Auth-Token": token})
            response = connection.getresponse()
            response.read()
            if response.status != expected:
                return f"{method} {path} answers {response.status}, not {expected}"
    except (OSError, http.client.HTTPException) as error:
        return f"{storage_url} does not answer: {error}"
    finally:
        connection.close()
    return None

