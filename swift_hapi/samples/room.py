"""Memory that several threads have for their pixels at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Room:
    """``nbytes`` for all that ask. Who asks for more than that waits until it is alone; nobody
    overtakes those who wait, so that many small ones do not keep a large one out."""

    def __init__(self, nbytes: int):
        self.nbytes = nbytes
        self._turn = threading.Lock()
        self._changed = threading.Condition()
        self._taken = 0

    @contextlib.contextmanager
    def taken(self, nbytes: int) -> Iterator[None]:
        """Blocks until ``nbytes`` are free, and holds them for the length of the block."""
        with self._turn, self._changed:
            self._changed.wait_for(
                lambda: self._taken == 0 or self._taken + nbytes <= self.nbytes
            )
            self._taken += nbytes
        try:
            yield
        finally:
            with self._changed:
                self._taken -= nbytes
                self._changed.notify_all()
