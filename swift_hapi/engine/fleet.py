"""Several engine processes on one socket: started, restarted, told to end.

The parent binds the socket, imports neither torch nor anything else that is large, and hands the
listening descriptor on; whichever process is free takes the next connection. A process that ends
is started again, the later the more often it has.
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

from swift_hapi.engine.config import EngineConfig
from swift_hapi.engine.unix_socket import listening_socket

LOG = logging.getLogger(__name__)
BACKOFF_FIRST = 0.5  #: seconds before the first restart; doubles with each
BACKOFF_MAX = 30.0
#: seconds that a worker must have run for its next restart to be a first one again
BACKOFF_FORGET = 60.0
#: seconds beyond ``drain_timeout`` after which a worker is killed
GRACE = 10.0


class Worker:
    """One engine process, or the wait for its next start.

    :param argv: how it is started
    """

    def __init__(self, number: int, argv: list[str], descriptor: int):
        self.number = number
        self.process: subprocess.Popen | None = None
        self.restart_at = 0.0
        self._argv = argv
        self._descriptor = descriptor
        self._backoff = BACKOFF_FIRST
        self._started = 0.0

    def start(self, now: float) -> None:
        self.process = subprocess.Popen(self._argv, pass_fds=(self._descriptor,))
        self._started = now
        LOG.info("worker %d started, pid %d", self.number, self.process.pid)

    def look_after(self, now: float) -> None:
        """Notice that it has ended; start it again when it is time."""
        if self.process is not None:
            code = self.process.poll()
            if code is None:
                return
            self.process = None
            if now - self._started > BACKOFF_FORGET:
                self._backoff = BACKOFF_FIRST
            self.restart_at = now + self._backoff
            LOG.error(
                "worker %d ended (%d), again in %.1f s", self.number, code, self._backoff
            )
            self._backoff = min(2 * self._backoff, BACKOFF_MAX)
        elif now >= self.restart_at:
            self.start(now)

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


def run_fleet(config: EngineConfig, path: str) -> int:
    """Run ``config.workers`` engines until SIGTERM or SIGINT; the caller holds the socket's lock.

    :param path: of the configuration file, which every worker reads itself
    :returns: exit status
    """
    with listening_socket(config.socket, config.socket_mode, config.socket_group) as listener:
        LOG.info("%d workers listen on %s", config.workers, config.socket)
        listener.set_inheritable(True)
        workers = [
            Worker(number, _argv(path, number, listener.fileno()), listener.fileno())
            for number in range(config.workers)
        ]
        try:
            _watch(workers)
        finally:
            _end(workers, config.drain_timeout + GRACE)
    return 0


def _argv(path: str, number: int, descriptor: int) -> list[str]:
    program = [sys.executable, "-m", "swift_hapi.engine.main", "--config", path]
    return [*program, "--worker", str(number), "--listen", str(descriptor)]


def _watch(workers: list[Worker]) -> None:
    """Until a signal says that it is over."""
    over = False

    def on_end(*_) -> None:
        nonlocal over
        over = True

    def on_hangup(*_) -> None:
        for worker in workers:
            worker.signal(signal.SIGHUP)

    reader, writer = socket.socketpair()
    with reader, writer, selectors.DefaultSelector() as selector:
        for end in (reader, writer):
            end.setblocking(False)
        # Any signal, a worker's end among them, wakes the wait below.
        previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        handlers = {
            number: signal.signal(number, handler)
            for number, handler in (
                (signal.SIGTERM, on_end),
                (signal.SIGINT, on_end),
                (signal.SIGHUP, on_hangup),
                (signal.SIGCHLD, lambda *_: None),
            )
        }
        selector.register(reader, selectors.EVENT_READ)
        try:
            while not over:
                now = time.monotonic()
                for worker in workers:
                    worker.look_after(now)
                due = [w.restart_at - now for w in workers if w.process is None]
                if selector.select(max(0.05, min(due)) if due else None):
                    reader.recv(4096)
        finally:
            signal.set_wakeup_fd(previous)
            for number in (signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, handlers[number])


def _end(workers: list[Worker], patience: float) -> None:
    for worker in workers:
        worker.signal(signal.SIGTERM)
    until = time.monotonic() + patience
    for worker in workers:
        if worker.process is None:
            continue
        try:
            worker.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            LOG.error("worker %d does not heed SIGTERM", worker.number)
            worker.process.kill()
            worker.process.wait()


def adopted(descriptor: int) -> socket.socket:
    """The parent's listening socket in a worker; it must not reach the worker's children."""
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)
