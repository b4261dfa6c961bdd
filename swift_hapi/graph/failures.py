"""Why a network failed to run: for want of memory, or because it cannot run on these samples."""

from __future__ import annotations

import errno

import torch

#: How PyTorch, oneDNN and the C++ library say it.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "out of memory",
    "bad_alloc",
    "could not create a memory object",
    "could not create a primitive",
)


def is_allocation_failure(error: BaseException) -> bool:
    """Whether a smaller micro-batch might have gone well."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY)
