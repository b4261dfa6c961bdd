"""glibc's allocator, set for tensors, and what should not be in its heap; the same on both tiers.

By default glibc maps every large block afresh and unmaps it when freed: a forward pass of a thin
network then spends up to half its time on page faults.
"""

from __future__ import annotations

import ctypes
import mmap

#: Smaller blocks do no harm in the heap, and a mapping costs a page at least.
_LEAST = 256 << 10
# mallopt(3)
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8


def keep_freed_memory() -> bool:
    """Keep large blocks instead of returning them to the kernel each time.

    One arena serves all threads, because only the main one can grow to the size of an
    activation. The peak of memory is what it was; it is only not given back.

    :returns: False where the C library has no ``mallopt`` (musl, macOS); nothing is done then
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1))
    done = [mallopt(option, value) for option, value in settings]
    return all(done)


def own_memory(nbytes: int) -> memoryview:
    """Writable zeroed memory for what is large and lives long: weights, objects, responses.

    Mapped from the kernel, and returned to it as soon as nobody refers to it. In the heap, which
    is kept, it would sit between the short lives of activations and leave holes there that
    nothing fits into.

    :raises OSError: ENOMEM
    :raises MemoryError: likewise
    """
    if nbytes < _LEAST:
        return memoryview(bytearray(nbytes))
    return memoryview(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
