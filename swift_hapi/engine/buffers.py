"""Memory for what is large and lives long: objects and responses.

Mapped from the kernel one by one, and returned to it as soon as nobody refers to them. Taken from
the heap, which is kept (see :mod:`swift_hapi.graph.allocator`), they would sit between the short
lives of activations and leave holes there that nothing fits into.
"""

from __future__ import annotations

import math
import mmap

import numpy as np

#: Smaller ones do no harm, and a mapping costs a page at least.
_LEAST = 256 << 10


def buffer(nbytes: int) -> memoryview:
    """Writable zeroed memory.

    :raises OSError: ENOMEM
    :raises MemoryError: likewise
    """
    if nbytes < _LEAST:
        return memoryview(bytearray(nbytes))
    return memoryview(mmap.mmap(-1, nbytes))


def array(shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """A C-ordered array of zeros in such memory."""
    dtype = np.dtype(dtype)
    memory = buffer(math.prod(shape) * dtype.itemsize)
    return np.frombuffer(memory, dtype=dtype).reshape(shape)
