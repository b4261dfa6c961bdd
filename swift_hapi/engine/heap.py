"""What the heap keeps beyond its use, and when it has to give it back.

Freed memory stays in the heap (see :mod:`swift_hapi.graph.allocator`), because taking it from the
kernel again for every activation would cost as much as the arithmetic of thin networks. What is
kept for one network fits the next one's activations only in part. As long as the budget has room
for both that is of no concern; when it has not, the pages between are returned.
"""

from __future__ import annotations

import ctypes
import os

_PAGE = os.sysconf("SC_PAGE_SIZE")


class _MallInfo(ctypes.Structure):
    """mallinfo2(3); ``fordblks`` is the free memory within the heap."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    ]  # fmt: skip


def resident() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE


class Heap:
    """Keeps the process within ``base + budget`` bytes, where its own bookkeeping does.

    :param budget: bytes that are given to work, weights and requests
    """

    def __init__(self, budget: int):
        self._budget = budget
        self._limit: int | None = None
        self.trims = 0
        try:
            library = ctypes.CDLL(None)
            self._mallinfo = library.mallinfo2
            self._mallinfo.restype = _MallInfo
            self._trim = library.malloc_trim
        except (OSError, AttributeError):  # not glibc, or one before 2.33
            self._mallinfo = self._trim = None

    def settle(self) -> None:
        """What is in memory now is the process itself; the budget comes on top."""
        self._limit = resident() + self._budget

    def make_room(self, nbytes: int) -> None:
        """Before ``nbytes`` are allocated, of which no more than half need to fit into what the
        heap keeps."""
        if self._limit is None or self._trim is None:
            return
        now = resident()
        if now + nbytes <= self._limit:
            return
        kept = self._mallinfo().fordblks
        if now + max(nbytes // 2, nbytes - kept) > self._limit:
            self.give_back()

    def give_back(self) -> None:
        """Return what the heap keeps and does not use."""
        if self._trim is not None:
            self._trim(0)
            self.trims += 1
