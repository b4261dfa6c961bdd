"""The order of samples, as pure functions of seed, epoch and listing.

Shards are permuted and taken in windows of W: W bounds memory. The samples of an epoch make
batches of B, and within a window a sample's place in its batch tells the stretch of the window it
is taken from: slot p of all the window's batches shares one run of consecutive samples, permuted
over those batches. So whoever wants the slots from p to q of every batch, one rank of many, needs
one run of consecutive samples and no more, whatever p and q are.

Nothing here depends on the split, the tier, the number of ranks, workers and threads, or what had
to be repeated: a run sees the same batches wherever its parts are computed.

Only raw 64-bit words are taken from numpy's Philox, which stay the same across numpy versions.
"""

from __future__ import annotations

import hashlib

import numpy as np


def _words(count: int, *path: object) -> np.ndarray:
    digest = hashlib.sha256("/".join(map(str, path)).encode()).digest()
    return np.random.Philox(key=int.from_bytes(digest[:16], "little")).random_raw(count)


def permutation(count: int, *path: object) -> np.ndarray:
    """A permutation of ``range(count)`` that ``path`` alone decides; int64 [count]."""
    if count == 0:
        return np.empty(0, dtype=np.int64)
    return np.argsort(np.atleast_1d(_words(count, *path)), kind="stable")


def shard_order(seed: int, epoch: int, shards: int) -> np.ndarray:
    """Order of the shards in one epoch; int64 [shards]."""
    return permutation(shards, seed, epoch, "shards")


def sample_order(
    seed: int, epoch: int, window: int, samples: int, start: int = 0, batch: int = 1
) -> np.ndarray:
    """Order of the samples within the ``window``-th window of an epoch; int64 [samples].

    :param start: samples of the epoch before this window
    :param batch: samples in a batch, over all ranks
    """
    if samples == 0:
        return np.empty(0, dtype=np.int64)
    slots = (start + np.arange(samples, dtype=np.int64)) % batch
    by_slot = np.argsort(slots, kind="stable")
    words = np.atleast_1d(_words(samples, seed, epoch, "window", window))
    result = np.empty(samples, dtype=np.int64)
    # Position i of the window belongs to slot slots[by_slot[i]]: there are equally many of both.
    result[by_slot] = np.lexsort((words, slots[by_slot]))
    return result


def windows(order: np.ndarray, width: int) -> list[np.ndarray]:
    """``order`` cut into runs of ``width`` shards; the last may be shorter."""
    return [order[start : start + width] for start in range(0, len(order), width)]


def hold_out(seed: int, shards: int, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Whole shards for training and for validation, each in listing order.

    With ``fraction`` > 0 both sides get at least one shard.

    :raises ValueError: fewer than two shards to divide
    """
    everything = np.arange(shards, dtype=np.int64)
    if fraction == 0:
        return everything, everything[:0]
    if shards < 2:
        raise ValueError(
            f"a validation split needs two shards or more, there is {shards}: pack the images "
            "into smaller ones (hapi put --shard-samples)"
        )
    held = min(shards - 1, max(1, round(shards * fraction)))
    order = permutation(shards, seed, "validation")
    return np.sort(order[held:]), np.sort(order[:held])
