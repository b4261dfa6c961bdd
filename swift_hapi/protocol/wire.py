"""What features are as they travel (``X-Hapi-Dtype``), and what makes float32 of them again.

:mod:`swift_hapi.graph.packing` does it.

``float32``
    as computed.
``float16``
    rounded to nearest even.
``int8``
    affine, with a range of its own for every (sample, channel), or for every sample where channels
    are one value each, so that the bytes of a sample do not depend on its neighbours::

        scale = (max - min) / 255,  zero = min + 128 scale,  x = scale q + zero,  q in [-128, 127]

    Where the lowest value is 0 it comes back as 0: the zeros that a ReLU leaves stay zeros.
``uint8``
    pixels before ``mean`` and ``std``; exact, and for the cut ``input`` alone. It is made by the
    decoder and undone by :func:`swift_hapi.samples.decode.normalised`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

#: numpy's types of ``features`` in a payload, by ``X-Hapi-Dtype``
ARRAYS = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "int8": np.dtype("i1"),
    "uint8": np.dtype("u1"),
}
#: those from which float32 does not come back bit by bit
LOSSY = ("float16", "int8")
_RANGE_BYTES = 8  #: ``scale`` and ``zero``


@dataclass(frozen=True)
class Packed:
    """``rows`` [n, ...] as they travel; for int8 float32 ``scale`` and ``zero``,
    :func:`ranges_shape`."""

    rows: np.ndarray
    scale: np.ndarray | None = None
    zero: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)


def ranges_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of ``scale`` and ``zero`` for features of ``shape`` [n, ...].

    Channels of one value each (pooled features) are flat: with a range for every value int8 would
    be larger than float32.
    """
    return shape[:2] if math.prod(shape[2:]) > 1 else shape[:1]


def sample_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Of one sample's features of ``shape`` as they travel."""
    size = ARRAYS[dtype].itemsize * math.prod(shape)
    return size + _RANGE_BYTES * math.prod(ranges_shape((1, *shape))) * (dtype == "int8")
