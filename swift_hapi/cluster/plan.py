"""What the supervisor is to run, and the two words its starter may say to it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

READY = b"r"  #: everything has answered
DETACH = b"d"  #: live on without me


@dataclass(frozen=True)
class ServerPlan:
    """One server to run; ``restart`` says whether its death is to be mended."""

    name: str
    argv: tuple[str, ...]
    log: str
    pid_file: str
    restart: bool = False


@dataclass(frozen=True)
class Plan:
    """All that the supervisor needs to know.

    :param cwd: working directory of all servers
    :param starter: pid of the process that holds the other end of standard input
    :param state_file: where to keep the state
    :param access: goes into the state as it is
    :param transient: paths to remove at the end
    """

    cwd: str
    starter: int
    state_file: str
    servers: tuple[ServerPlan, ...]
    access: dict[str, str | None] = field(default_factory=dict)
    transient: tuple[str, ...] = ()

    def dump(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Plan:
        raw = json.loads(path.read_text())
        servers = tuple(
            ServerPlan(**(server | {"argv": tuple(server["argv"])}))
            for server in raw.pop("servers")
        )
        return cls(servers=servers, transient=tuple(raw.pop("transient")), **raw)
