"""The unix socket and the HTTP server on it.

The engine binds the socket itself: under a temporary name, with its mode and group set, and only
then renamed to where clients look, so that nobody ever meets it with other permissions or before
it listens. (uvicorn's own ``--uds`` makes sockets that everybody may use.) A lock beside it keeps
two engines from one socket; a socket left by a killed engine is replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import logging
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from swift_hapi.engine.app import make_app
from swift_hapi.engine.config import EngineConfig
from swift_hapi.engine.connection import EngineProtocol
from swift_hapi.engine.engine import Engine

LOG = logging.getLogger(__name__)
_BACKLOG = 512
_KEEP_ALIVE = 30
#: Linux: sockaddr_un.sun_path has 108 bytes, one is the end.
_LONGEST_PATH = 107


class SocketInUse(OSError):
    """Another engine serves this socket."""


def _group_id(group: str) -> int:
    if not group:
        return -1
    return int(group) if group.isdigit() else grp.getgrnam(group).gr_gid


@contextlib.contextmanager
def bound_socket(path: Path, mode: int, group: str) -> Iterator[socket.socket]:
    """A listening socket at ``path``, removed at the end.

    :raises SocketInUse: another process has it
    :raises OSError: directory or permissions do not allow it
    :raises KeyError: there is no such group
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    if len(os.fsencode(temporary)) > _LONGEST_PATH:
        raise OSError(f"socket path {path} is too long for a unix socket")
    os.makedirs(path.parent, mode=0o700, exist_ok=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SocketInUse(f"another engine serves {path}") from None
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            temporary.unlink(missing_ok=True)
            previous = os.umask(0o177)
            try:
                listener.bind(str(temporary))
            finally:
                os.umask(previous)
            try:
                os.chown(temporary, -1, _group_id(group))
                os.chmod(temporary, mode)
                listener.listen(_BACKLOG)
                os.rename(temporary, path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            try:
                yield listener
            finally:
                path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def serve(config: EngineConfig) -> int:
    """Run until SIGTERM or SIGINT: stop accepting, finish what is under way (for at most
    ``drain_timeout``), remove the socket.

    :returns: exit status
    """
    engine = Engine(config)
    failed = False

    def give_up() -> None:
        nonlocal failed
        failed = True
        server.should_exit = True

    server = uvicorn.Server(
        uvicorn.Config(
            make_app(engine, give_up),
            http=EngineProtocol,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, round(config.drain_timeout)),
        )
    )
    # uvicorn raises the signal again when it has shut down; the socket is still to be removed.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    with bound_socket(config.socket, config.socket_mode, config.socket_group) as listener:
        LOG.info("listening on %s", config.socket)
        server.run(sockets=[listener])
    return 1 if failed else 0
