"""What functional tests share besides fixtures."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import requests

from swift_hapi.cluster import EmbeddedCluster, authenticate


@dataclass(frozen=True)
class Account:
    """A user who is logged in; ``session`` sends his token with every request."""

    user: str
    storage_url: str
    token: str
    session: requests.Session

    def url(self, *path: str) -> str:
        """URL of a container or object in the user's own account."""
        return "/".join([self.storage_url, *map(quote, path)])

    def put(self, *path: str, data: bytes = b"", **headers: str) -> requests.Response:
        """PUT that must succeed; underscores in header names stand for dashes."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        response = self.session.put(self.url(*path), data=data, headers=names)
        response.raise_for_status()
        return response


def log_in(cluster: EmbeddedCluster, user: str) -> Account:
    key = next(known.key for known in cluster.config.users if known.name == user)
    storage_url, token = authenticate(cluster.auth_url, user, key)
    session = requests.Session()
    session.trust_env = False
    session.headers["X-Auth-Token"] = token
    return Account(user, storage_url, token, session)


def wait_until(condition: Callable[[], object], what: str, timeout: float = 60.0) -> None:
    """Wait until ``condition()`` is true; the timeout only ends a test that has failed."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.02)


def take_interrupts() -> None:
    """For ``preexec_fn``: a run that was started in the background of a shell ignores SIGINT, and
    so would what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def processes_naming(text: str) -> list[int]:
    """Pids of the processes that have ``text`` in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text.encode() in command:
            found.append(int(path.parent.name))
    return found
