"""Arrays outside of the heap."""

from __future__ import annotations

import math

import numpy as np

from swift_hapi.graph.allocator import own_memory


def array(shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """A C-ordered array of zeros; its memory goes back to the system with it.

    :raises OSError: there is none (ENOMEM)
    :raises MemoryError: likewise
    """
    dtype = np.dtype(dtype)
    memory = own_memory(math.prod(shape) * dtype.itemsize)
    return np.frombuffer(memory, dtype=dtype).reshape(shape)
