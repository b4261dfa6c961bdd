"""A run's directory: one run at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

LOCK = ".lock"


@contextlib.contextmanager
def held(out: str | os.PathLike | None) -> Iterator[None]:
    """Make the directory if need be, and keep other runs out of it.

    The lock ends with the process, however that ends. A directory that nothing was written to is
    removed again.

    :param out: None: nothing to hold
    :raises ValueError: it cannot be written to, or another run has it
    """
    if out is None:
        yield
        return
    directory = Path(out)
    new = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = _lock(directory / LOCK)
    except OSError as error:
        raise ValueError(f"out={str(out)!r}: cannot be written to ({error.strerror})") from None
    if lock is None:
        raise ValueError(f"out={str(out)!r}: another run is writing there")
    try:
        yield
    finally:
        if new and os.listdir(directory) == [LOCK]:
            # The lock first: who waits behind it sees that it is gone.
            (directory / LOCK).unlink()
            with contextlib.suppress(OSError):
                directory.rmdir()
        os.close(lock)


def _lock(path: Path) -> int | None:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)  # Removed by its last holder meanwhile.
