"""``.npy`` tensors: header checked before anything is allocated, never pickled."""

from __future__ import annotations

import io
import math
import threading
import tokenize

import numpy as np

DTYPES = ("float32", "int64")
_MAX_HEADER = 4096
#: MemoryError is how Python's parser says that brackets are too deep; 4 KiB need no memory.
_MALFORMED = (
    SyntaxError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError,
    MemoryError, tokenize.TokenError,
)  # fmt: skip

#: NumPy has Python parse the header. Up to 3.11 the parser counts its depth for all threads
#: together, and now and then two at once end in a SystemError.
_PARSER = threading.Lock()


def decode_tensor(data: memoryview) -> np.ndarray:
    """A C-ordered float32 or int64 array.

    :raises ValueError: not an npy file of those types, or shape and size disagree
    """
    # Not all of it: BytesIO would copy it.
    stream = io.BytesIO(data[: _MAX_HEADER + 64])
    version = np.lib.format.read_magic(stream)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise ValueError(f"npy version {version} is not supported")
    try:
        with _PARSER:
            shape, fortran_order, dtype = read_header(stream, max_header_size=_MAX_HEADER)
    except _MALFORMED as error:
        raise ValueError(f"npy header is malformed: {type(error).__name__}") from None
    if any(type(side) is not int for side in shape):
        raise ValueError("npy header is malformed: a side of the shape is no integer")
    if dtype.hasobject or dtype.str not in ("<f4", "<i8"):
        raise ValueError(f"npy dtype {dtype} is none of {', '.join(DTYPES)}")
    offset, expected = stream.tell(), math.prod(shape) * dtype.itemsize
    if any(side <= 0 for side in shape) or expected != len(data) - offset:
        raise ValueError(f"npy of shape {shape} does not fit its {len(data) - offset} bytes")
    stored = np.frombuffer(data, dtype=dtype, offset=offset)
    # One copy, whatever the order is.
    return np.array(stored.reshape(shape, order="F" if fortran_order else "C"), order="C")
