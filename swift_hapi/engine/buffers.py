"""Arrays outside of the heap."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import numpy as np

from swift_hapi.graph.allocator import own_memory

_SPARE = 2  #: blocks kept for the next micro-batches


def array(shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """A C-ordered array of zeros; its memory goes back to the system with it.

    :raises OSError: there is none (ENOMEM)
    :raises MemoryError: likewise
    """
    dtype = np.dtype(dtype)
    memory = own_memory(math.prod(shape) * dtype.itemsize)
    return np.frombuffer(memory, dtype=dtype).reshape(shape)


class Scratch:
    """Blocks that micro-batches are decoded into, one after the other: memory that is used again
    need not be cleared by the system first. Event loop only."""

    def __init__(self):
        self._spare: list[memoryview] = []

    @contextlib.contextmanager
    def array(self, shape: tuple[int, ...], dtype: np.dtype | type) -> Iterator[np.ndarray]:
        """An array with whatever its memory held before, for the length of the block.

        :raises OSError: there is no memory (ENOMEM)
        """
        dtype = np.dtype(dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        block = self._take(nbytes)
        try:
            yield np.frombuffer(block[:nbytes], dtype=dtype).reshape(shape)
        finally:
            self._spare.append(block)
            # The largest ones serve everybody.
            self._spare.sort(key=len)
            del self._spare[:-_SPARE]

    def _take(self, nbytes: int) -> memoryview:
        for at, block in enumerate(self._spare):
            if nbytes <= len(block):
                return self._spare.pop(at)
        self._spare.clear()
        return own_memory(nbytes)
