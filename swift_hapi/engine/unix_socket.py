"""The engine's unix socket.

The engine binds it itself: under a temporary name, with its mode and group set, and only then
renamed to where clients look, so that nobody ever meets it with other permissions or before it
listens. (uvicorn's own ``--uds`` makes sockets that everybody may use.) A lock beside it keeps two
engines from one socket; a socket left by a killed engine is replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import socket
from collections.abc import Iterator
from pathlib import Path

BACKLOG = 512
#: Linux: sockaddr_un.sun_path has 108 bytes, one is the end.
_LONGEST_PATH = 107


class SocketInUse(OSError):
    """Another engine serves this socket."""


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _group_id(group: str) -> int:
    if not group:
        return -1
    return int(group) if group.isdigit() else grp.getgrnam(group).gr_gid


@contextlib.contextmanager
def socket_lock(path: Path) -> Iterator[None]:
    """The sole right to serve ``path``; its directory is created (0700) if need be.

    :raises SocketInUse: another process has it
    :raises OSError: directory or permissions do not allow it
    """
    if len(os.fsencode(_temporary(path))) > _LONGEST_PATH:
        raise OSError(f"{path} is too long for the path of a unix socket")
    os.makedirs(path.parent, mode=0o700, exist_ok=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SocketInUse(f"another engine serves {path}") from None
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def listening_socket(path: Path, mode: int, group: str) -> Iterator[socket.socket]:
    """A listening socket at ``path``, removed at the end. The caller holds its lock.

    :raises OSError: directory or permissions do not allow it
    :raises KeyError: there is no such group
    """
    temporary = _temporary(path)
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
            listener.listen(BACKLOG)
            os.rename(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)
