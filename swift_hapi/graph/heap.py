"""The process kept within its memory while a network runs.

Freed memory stays in the heap (see :mod:`swift_hapi.graph.allocator`), because taking it from the
kernel again for every activation would cost as much as the arithmetic of thin networks. But
activations differ so much in size that what one leaves seldom suits the next: the heap grows to
two to six times of what is alive. As long as there is room for that it is of no concern. When
there is not, what is free is returned between two nodes, as often as it must be; then the process
takes what is alive and little more, at the cost of page faults.
"""

from __future__ import annotations

import ctypes

from swift_hapi.graph.memory import HeadMemory
from swift_hapi.graph.program import Before
from swift_hapi.graph.residence import resident

#: a heap was never seen to grow to more than so many times of what is alive
_WILD = 6
#: Where even returning all leaves too little, trying again is of no use before so many more bytes
#: are taken.
_FUTILE = 4 << 20


def trimmer():
    """malloc_trim(3), None where the C library has none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None


class Heap:
    """Keeps the process within ``base + budget`` bytes, where the bookkeeping of those who take
    memory does. For the thread that runs networks, but for :meth:`settle`.

    :param budget: bytes that are given to work, weights and requests
    """

    def __init__(self, budget: int):
        self._budget = budget
        self._limit: int | None = None
        self._trim = trimmer()
        self.trims = 0

    def settle(self) -> None:
        """What is in memory now is the process itself; the budget comes on top."""
        self._limit = resident() + self._budget

    def watch(self, memory: HeadMemory, batch: int) -> Before | None:
        """To be called before every node of a run of ``batch`` samples; None if there is room
        enough in any case."""
        if self._limit is None or self._trim is None:
            return None
        if resident() + _WILD * memory.needs(batch) <= self._limit:
            return None
        worth = 0

        def before(at: int) -> None:
            nonlocal worth
            now = resident()
            if now + memory.grows(at, batch) <= self._limit or now < worth:
                return
            self.give_back()
            worth = resident() + _FUTILE

        return before

    def give_back(self) -> None:
        """Return what the heap keeps and does not use."""
        if self._trim is not None:
            self._trim(0)
            self.trims += 1
