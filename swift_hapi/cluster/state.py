"""``state.json``: what runs in a cluster's directory, written by its supervisor alone."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from swift_hapi.cluster.processes import ProcessId


@dataclass
class ServerState:
    """One server: its process, how often it was restarted, its last exit status.

    ``exit_code`` is None while it has never ended; negative is the signal that ended it.
    """

    process: ProcessId | None = None
    restarts: int = 0
    exit_code: int | None = None


@dataclass
class State:
    """What is known of a running cluster.

    :param supervisor: the parent of all servers
    :param ready: everything has answered once
    :param detached: it outlives the process that started it
    :param servers: by name
    :param access: auth_url, user, key, dir, engine_socket
    :param transient: paths to remove when it ends
    """

    supervisor: ProcessId
    ready: bool = False
    detached: bool = False
    servers: dict[str, ServerState] = field(default_factory=dict)
    access: dict[str, str | None] = field(default_factory=dict)
    transient: list[str] = field(default_factory=list)

    def pids(self) -> dict[str, int]:
        """Name to pid of the supervisor and every server that runs."""
        pids = {"supervisor": self.supervisor.pid}
        for name, server in self.servers.items():
            if server.process is not None:
                pids[name] = server.process.pid
        return pids


def write(path: Path, state: State) -> None:
    """Replace ``path`` in one step, readable by its owner only: it holds the user's key."""
    temporary = path.with_suffix(".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "w") as file:
        json.dump(asdict(state), file, indent=1)
    os.replace(temporary, path)


def read(path: Path) -> State | None:
    """The state, or None when there is none or it is not one of ours."""
    try:
        raw = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    try:
        servers = {
            name: ServerState(_process(server.pop("process")), **server)
            for name, server in raw.pop("servers").items()
        }
        return State(supervisor=ProcessId(**raw.pop("supervisor")), servers=servers, **raw)
    except (AttributeError, KeyError, TypeError):
        return None


def _process(raw: dict | None) -> ProcessId | None:
    return None if raw is None else ProcessId(**raw)
