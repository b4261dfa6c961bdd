"""Random transform steps as a pure function of (seed, epoch, sample key).

The generator is Philox (Salmon et al., SC'11) as numpy has it, keyed by the first 16 bytes of
sha256 of ``seed/epoch/key``. Only raw 64-bit words are taken from it: numpy keeps those stable
across versions, which it does not promise for its distributions (NEP 19).
"""

from __future__ import annotations

import hashlib
import math

import numpy as np


class SampleRandom:
    """Uniform numbers for one sample in one epoch, the same on every machine."""

    def __init__(self, seed: int, epoch: int, key: str):
        text = f"{seed}/{epoch}/{key}".encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(text).digest()
        self._bits = np.random.Philox(key=int.from_bytes(digest[:16], "little"))

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """A float64 in [low, high)."""
        return low + (high - low) * ((self._bits.random_raw() >> 11) * 2.0**-53)

    def below(self, n: int) -> int:
        """An integer in [0, n)."""
        return min(n - 1, int(self.uniform() * n))

    def permutation(self, n: int) -> list[int]:
        """0 to n - 1 in an order of which all are equally likely (Fisher and Yates)."""
        order = list(range(n))
        for last in range(n - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order


def random_resized_box(
    width: int,
    height: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    rng: SampleRandom,
) -> tuple[int, int, int, int]:
    """(left, top, width, height) of a random crop, distributed as torchvision's
    ``RandomResizedCrop``: ten draws of area and aspect, then the largest centre crop allowed.
    """
    log_ratio = math.log(ratio[0]), math.log(ratio[1])
    for _ in range(10):
        area = width * height * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(*log_ratio))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = rng.below(height - h + 1)
            return rng.below(width - w + 1), top, w, h
    w, h = width, height
    if width / height < ratio[0]:
        h = max(1, min(height, round(width / ratio[0])))
    elif width / height > ratio[1]:
        w = max(1, min(width, round(height * ratio[1])))
    return (width - w) // 2, (height - h) // 2, w, h
