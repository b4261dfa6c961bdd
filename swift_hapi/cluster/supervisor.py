"""The parent of all servers: ``python -m swift_hapi.cluster.supervisor PLAN``.

It starts what the plan lists, restarts what the plan says to restart, writes state.json and pid
files, and ends everything when it is told to or when whoever started it is gone: its standard
input is a pipe held by its starter, who may send ``r`` (all is ready) and ``d`` (live on without
me). Should it be killed itself, the kernel kills its children.

Imports neither swift nor torch: it is small and forks.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from swift_hapi.cluster import state as state_json
from swift_hapi.cluster.layout import remove
from swift_hapi.cluster.plan import DETACH, READY, Plan, ServerPlan
from swift_hapi.cluster.processes import ProcessId, signal_group, start_bound
from swift_hapi.cluster.state import ServerState, State

BACKOFF_FIRST = 0.2  #: seconds before the first restart; doubles with each
BACKOFF_MAX = 5.0
#: seconds a server must have run for its next restart to be a first one again
BACKOFF_FORGET = 10.0
#: seconds between the polite signal and the other one
GRACE = 3.0
_TICK = 0.5

log = logging.getLogger("supervisor")


class Server:
    """A planned server and its process, if it has one."""

    def __init__(self, plan: ServerPlan, cwd: Path):
        self.plan = plan
        self.state = ServerState()
        self.process: subprocess.Popen | None = None
        self.restart_at: float | None = None
        self._cwd = cwd
        self._backoff = BACKOFF_FIRST
        self._started = 0.0

    def start(self) -> None:
        self.restart_at = None
        self.process = start_bound(self.plan.argv, Path(self.plan.log), self._cwd)
        self._started = time.monotonic()
        self.state.process = ProcessId.of(self.process.pid)
        Path(self.plan.pid_file).write_text(f"{self.process.pid}\n")
        log.info("%s: started, pid %d", self.plan.name, self.process.pid)

    def reap(self) -> bool:
        """Notice that the process ended, and plan a restart if it is to have one."""
        if self.process is None or self.process.poll() is None:
            return False
        code = self.process.returncode
        # Its own children, if any, are still in its group.
        signal_group(self.process.pid, signal.SIGKILL)
        self.process = None
        self.state.process = None
        self.state.exit_code = code
        Path(self.plan.pid_file).unlink(missing_ok=True)
        if self.plan.restart:
            now = time.monotonic()
            if now - self._started > BACKOFF_FORGET:
                self._backoff = BACKOFF_FIRST
            self.restart_at = now + self._backoff
            log.warning("%s: ended (%d), again in %.1f s", self.plan.name, code, self._backoff)
            self._backoff = min(2 * self._backoff, BACKOFF_MAX)
        else:
            log.error("%s: ended (%d)", self.plan.name, code)
        return True

    def restart_if_due(self) -> bool:
        if self.restart_at is None or time.monotonic() < self.restart_at:
            return False
        self.state.restarts += 1
        self.start()
        return True

    def signal(self, signum: int) -> None:
        if self.process is not None:
            signal_group(self.process.pid, signum)


class Supervisor:
    """Runs a plan until it is told to stop."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.servers = [Server(server, Path(plan.cwd)) for server in plan.servers]
        self.state = State(
            supervisor=ProcessId.of(os.getpid()),
            servers={server.plan.name: server.state for server in self.servers},
            access=plan.access,
            transient=list(plan.transient),
        )
        self._stop: str | None = None
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        self._watch_signals()
        self._selector.register(0, selectors.EVENT_READ, self._hear_starter)
        try:
            for server in self.servers:
                server.start()
            self._save()
            while self._stop is None:
                self._round()
            log.info("stopping: %s", self._stop)
        finally:
            self._end_all()
            remove(self.plan.transient)
            remove((self.plan.state_file,))

    def _round(self) -> None:
        now = time.monotonic()
        due = [server.restart_at - now for server in self.servers if server.restart_at is not None]
        for key, _ in self._selector.select(max(0.0, min([_TICK, *due]))):
            key.data()
        # A fork of the starter may hold the pipe open beyond its death.
        if not self.state.detached and os.getppid() != self.plan.starter:
            self._stop = "the starter is gone"
        changed = [server.reap() or server.restart_if_due() for server in self.servers]
        if any(changed):
            self._save()

    def _hear_starter(self) -> None:
        said = os.read(0, 16)
        if not said:
            self._selector.unregister(0)
            if not self.state.detached:
                self._stop = "the starter let go"
            return
        self.state.ready = self.state.ready or READY in said
        self.state.detached = self.state.detached or DETACH in said
        self._save()

    def _watch_signals(self) -> None:
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        self._wakeup = (reader, writer)  # keeps both open
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._selector.register(reader, selectors.EVENT_READ, lambda: reader.recv(4096))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, self._on_signal)

    def _on_signal(self, signum, _frame) -> None:
        self._stop = signal.Signals(signum).name

    def _save(self) -> None:
        state_json.write(Path(self.plan.state_file), self.state)

    def _end_all(self) -> None:
        for signum, grace in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
            for server in self.servers:
                server.signal(signum)
            deadline = time.monotonic() + grace
            for server in self.servers:
                if server.process is None:
                    continue
                try:
                    server.process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    log.warning("%s: does not heed %s", server.plan.name, signum)
                else:
                    signal_group(server.process.pid, signal.SIGKILL)
                    server.process = None


def main(argv: list[str]) -> int:
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    Supervisor(Plan.load(Path(argv[0]))).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
