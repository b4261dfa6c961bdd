"""Clusters that run already: find one by its directory, end it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from swift_hapi.cluster import layout, probe
from swift_hapi.cluster import state as state_json
from swift_hapi.cluster.errors import ClusterError
from swift_hapi.cluster.processes import signal_group
from swift_hapi.cluster.state import State

STOP_TIMEOUT = 20.0  #: seconds a supervisor may take to end its servers


@dataclass(frozen=True)
class ClusterInfo:
    """How to use a cluster; the JSON that ``hapi cluster up`` writes."""

    auth_url: str
    user: str
    key: str
    storage_url: str
    token: str
    dir: str
    engine_socket: str | None
    pids: dict[str, int]

    def as_dict(self) -> dict:
        return asdict(self)


def running_state(directory: str | os.PathLike) -> State | None:
    """State of the cluster in ``directory``, or None when none runs there."""
    state = state_json.read(layout.state_file(Path(directory).absolute()))
    return state if state is not None and state.supervisor.alive() else None


def find(directory: str | os.PathLike) -> ClusterInfo | None:
    """The running, ready cluster in ``directory``, with a fresh token; None when there is none.

    :raises ClusterError: its proxy does not let us in
    """
    state = running_state(directory)
    if state is None or not state.ready:
        return None
    access = state.access
    storage_url, token = probe.authenticate(access["auth_url"], access["user"], access["key"])
    return ClusterInfo(**access, storage_url=storage_url, token=token, pids=state.pids())


def shut_down(directory: str | os.PathLike) -> bool:
    """End the cluster in ``directory`` and remove what a dead one left behind.

    :returns: whether one was running
    :raises ClusterError: it did not end
    """
    directory = Path(directory).absolute()
    state = state_json.read(layout.state_file(directory))
    if state is None:
        return False
    running = state.supervisor.alive()
    if running:
        os.kill(state.supervisor.pid, signal.SIGTERM)
        if not state.supervisor.wait_gone(STOP_TIMEOUT):
            os.kill(state.supervisor.pid, signal.SIGKILL)
            if not state.supervisor.wait_gone(STOP_TIMEOUT):
                raise ClusterError(f"supervisor {state.supervisor.pid} cannot be ended")
    clean_up(directory)
    return running


def clean_up(directory: Path) -> None:
    """End and remove what a supervisor that was killed left behind."""
    path = layout.state_file(directory)
    state = state_json.read(path)
    if state is None or state.supervisor.alive():
        return
    left = [server.process for server in state.servers.values() if server.process is not None]
    for process in left:
        # The kernel ends them with their supervisor; a moment may pass until it has.
        if not process.wait_gone(1.0):
            signal_group(process.pid, signal.SIGKILL)
    layout.remove(state.transient)
    layout.remove((path,))


def find_or_wait(directory: str | os.PathLike, timeout: float) -> ClusterInfo | None:
    """Like :func:`find`, but one that somebody else is starting just now is waited for.

    :raises ClusterError: it is neither ready nor gone after ``timeout`` seconds
    """
    directory = Path(directory).absolute()
    deadline = time.monotonic() + timeout
    while directory.is_dir():
        info = find(directory)
        if info is not None:
            return info
        if not layout.is_ours(directory):
            return None  # Nobody has begun; and nothing is to be left in a stranger's directory.
        fd = layout.lock(directory)
        if fd is not None:
            os.close(fd)
            return None
        if time.monotonic() > deadline:
            raise ClusterError(f"the cluster in {directory} neither gets ready nor ends")
        time.sleep(0.1)
    return None
