"""What passes between the stages of the loader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hapi_compute.data.errors import LabelMissing
from hapi_compute.data.listing import Shard
from swift_hapi.protocol.headers import SampleRange
from swift_hapi.protocol.transform import TransformSpec


@dataclass(frozen=True)
class Job:
    """Read ``shard`` for ``epoch``; ``transform`` is None when samples are tensors.

    ``samples`` None: all of them.
    """

    shard: Shard
    epoch: int
    transform: TransformSpec | None
    samples: SampleRange | None = None

    @property
    def count(self) -> int | None:
        """Samples to read, None when not known."""
        if self.samples is not None:
            return self.samples.last - self.samples.first + 1
        return self.shard.samples


class Rows(Protocol):
    """The samples of one shard as float32 arrays of one shape."""

    def load(self, position: int, out: np.ndarray) -> None:
        """Write sample ``position`` into ``out``; may be slow (decoding) or a mere copy."""


@dataclass(frozen=True)
class ShardSamples:
    """One shard, read. ``keys`` and ``labels`` (int64) go with positions in ``rows``.

    ``first`` is the place in the shard of position 0.
    ``cut`` is where the rows were taken; None: decoded samples. ``storage`` is step to seconds on
    the storage tier; ``fallback`` tells that features were asked for and the object itself had to
    be read; ``times`` of each request as in :class:`~hapi_compute.store.answer.Answer`.
    """

    rows: Rows
    keys: tuple[str, ...]
    labels: np.ndarray
    bytes_received: int
    fallback: bool = False
    storage: dict[str, float] = field(default_factory=dict)
    cut: str | None = None
    times: tuple[tuple[float, float, float], ...] = ()
    first: int = 0

    def __len__(self) -> int:
        return len(self.keys)


class Reader(Protocol):
    """Reads one shard; called from several threads at once."""

    def expected_bytes(self, job: Job) -> int:
        """About how much memory the samples will take once read."""

    def read(self, job: Job, sleep) -> ShardSamples:
        """:param sleep: as :class:`hapi_compute.store.retry.Retrier` has it"""


def label_array(labels, keys, shard: Shard, where: str, num_classes: int | None) -> np.ndarray:
    """Labels as int64, every one of them valid.

    :param labels: from the shard; a single-sample object has its own from the listing, and a
        table goes before both
    :param num_classes: None: labels may be missing (-1), and any number will do
    :raises LabelMissing: naming object and key
    """
    result = np.asarray(labels, dtype=np.int64)
    if shard.label is not None:
        result = np.full(result.shape, shard.label, dtype=np.int64)
    elif shard.labels is not None:
        result = shard.labels.of(keys, where)
    if num_classes is None:
        return result
    bad = np.flatnonzero((result < 0) | (result >= num_classes))
    if len(bad):
        label, key = result[bad[0]], keys[bad[0]]
        why = f"has label {label}, there are {num_classes} classes"
        if label < 0:
            why = "has no label"
        raise LabelMissing(f"{where}: sample {key!r} {why}", key=str(key))
    return result
