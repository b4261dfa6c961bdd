"""Files that appear whole or not at all; what is no regular file is written through.

A symbolic link is followed: what it leads to is replaced, not the link. A device, a FIFO or an
open descriptor (``/dev/stdout``, ``/dev/fd/3``) has nothing to be replaced. Directories on the way
are made.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR = re.compile(r"(?:/dev/fd|/proc/self/fd)/(\d{1,9})")


def write_whole(path: str | os.PathLike, content: bytes, *, private: bool = False) -> None:
    """Write to a temporary name beside ``path``, flush to disk, rename.

    :param private: only the owner may read it
    """
    with open_whole(path, private=private) as stream:
        stream.write(content)


@contextlib.contextmanager
def open_whole(path: str | os.PathLike, *, private: bool = False) -> Iterator[IO[bytes]]:
    """A stream of bytes for ``path``; a regular file appears when the block ends without an
    exception, and else stays as it was."""
    target = regular(path)
    if target is None:
        with _through(os.fspath(path)) as stream:
            yield stream
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if not private:
            # mkstemp makes files that only their owner may read.
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except BaseException:
        # An interrupt may come just after the rename: it must stay what it is.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def regular(path: str | os.PathLike) -> Path | None:
    """Where the regular file lies, or will lie, that ``path`` leads to; None: it is of another
    kind."""
    if _descriptor(os.fspath(path)) is not None:
        return None
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
    except (FileNotFoundError, NotADirectoryError):
        pass
    return Path(os.path.realpath(path))


def check_writable(path: str, name: str) -> None:
    """Find out before the work, not after it, that its result has no place.

    :param name: of the option, for the message
    :raises ValueError: nothing can be written there
    """
    if not path or path.endswith("/") or os.path.isdir(path):
        raise ValueError(f"{name}: {path!r} is a directory" if path else f"{name}: is empty")
    try:
        target = regular(path)
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            # Permissions alone do not say it: of root, or of a read-only file system.
            with tempfile.TemporaryFile(dir=target.parent):
                pass
        elif _descriptor(path) is not None:
            os.fstat(_descriptor(path))
        elif not os.access(path, os.W_OK):
            raise PermissionError(0, "Permission denied")
    except OSError as error:
        raise ValueError(f"{name}: {path!r} cannot be written ({error.strerror})") from None


def _descriptor(path: str) -> int | None:
    found = _DESCRIPTOR.fullmatch(path)
    return int(found[1]) if found else _STREAMS.get(path)


@contextlib.contextmanager
def _through(path: str) -> Iterator[IO[bytes]]:
    descriptor = _descriptor(path)
    if descriptor is None:
        with open(path, "wb") as stream:
            yield stream
        return
    # Not opened anew: that would write from the beginning, over what was printed before.
    for printed in (sys.stdout, sys.stderr):
        printed.flush()
    with os.fdopen(os.dup(descriptor), "wb") as stream:
        yield stream
