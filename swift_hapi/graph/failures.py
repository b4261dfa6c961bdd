"""Why a network did not run to its end: for want of memory, because it cannot run on these
samples, or because nobody wants the result any more."""

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


class Abandoned(Exception):
    """The run was given up between two nodes; its memory is free when this has been caught."""


def is_allocation_failure(error: BaseException) -> bool:
    """Whether a smaller micro-batch might have gone well."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # oneDNN has no kernel for what it cannot describe, however few samples there are.
    text = str(error).lower().replace("primitive descriptor", "")
    return isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY)
