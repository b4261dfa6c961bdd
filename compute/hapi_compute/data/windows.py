"""Windows of shards, and which of their samples go where: the plan of an epoch's batches.

Pure: nothing is read here. Step g of an epoch is its batch of samples [g*B, (g+1)*B), the same for
every number of ranks and workers. Rank r of R has the r-th of R nearly equal runs of each batch's
slots; of these, worker w of K has every K-th step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hapi_compute.data import order
from hapi_compute.data.errors import DatasetError
from hapi_compute.data.listing import Dataset, Shard
from hapi_compute.data.shards import Job
from swift_hapi.protocol.headers import SampleRange
from swift_hapi.protocol.transform import TransformSpec


@dataclass(frozen=True)
class Window:
    """Shards whose samples are shuffled together.

    ``seed`` None keeps the order of the shards; ``start`` samples of the epoch lie before the
    window (None: not known beforehand); of these and its own, the first ``begin`` are left out;
    ``last`` closes the epoch.
    """

    epoch: int
    index: int
    shards: tuple[Shard, ...]
    seed: int | None = None
    start: int | None = None
    begin: int = 0
    last: bool = False

    @property
    def samples(self) -> int | None:
        counts = [shard.samples for shard in self.shards]
        return None if None in counts else sum(counts)


def training_windows(
    dataset: Dataset, seed: int | None, epoch: int, width: int, begin: int = 0
) -> list[Window]:
    """The windows of one epoch.

    :param seed: None keeps the order of the listing
    :param begin: samples at the epoch's start that have been trained on already; windows that lie
        wholly before are left out where their sizes are known
    """
    shard_order = np.arange(len(dataset.shards))
    if seed is not None:
        shard_order = order.shard_order(seed, epoch, len(dataset.shards))
    runs = order.windows(shard_order, width)
    result = []
    start: int | None = 0
    for index, run in enumerate(runs):
        shards = tuple(dataset.shards[i] for i in run)
        last = index == len(runs) - 1
        window = Window(epoch, index, shards, seed, start, begin, last)
        start = None if start is None or window.samples is None else start + window.samples
        if last or start is None or start > begin:
            result.append(window)
    return result


def sequential_windows(dataset: Dataset, parts: tuple[int, int] = (0, 1)) -> list[Window]:
    """One shard after the other, in listing order.

    :param parts: (i, n): only every n-th shard from the i-th on
    """
    shards = dataset.shards[parts[0] :: parts[1]]
    last = len(shards) - 1
    return [Window(0, i, (shard,), last=i == last) for i, shard in enumerate(shards)]


@dataclass(frozen=True)
class Share:
    """Rank ``rank`` of ``ranks``, there worker ``worker`` of ``workers``; the first worker has
    step ``first_step``."""

    rank: int = 0
    ranks: int = 1
    worker: int = 0
    workers: int = 1
    first_step: int = 0

    def __post_init__(self):
        for name, count in (("rank", self.ranks), ("worker", self.workers)):
            if not 0 <= getattr(self, name) < count:
                raise ValueError(f"{name}={getattr(self, name)}: want 0 to {count - 1}")

    @property
    def alone(self) -> bool:
        return self.ranks == 1 and self.workers == 1

    def slots(self, size):
        """First slot and the one after the last in a batch of ``size``; numbers or arrays. What
        cannot be divided goes to the first ranks."""
        return -(-self.rank * size // self.ranks), -(-(self.rank + 1) * size // self.ranks)

    def has_step(self, step):
        return (step - self.first_step) % self.workers == self.worker


@dataclass(frozen=True)
class Step:
    """Batch ``step`` of an epoch has ``total`` samples, ``own`` of them this share's."""

    step: int
    total: int
    own: int


@dataclass(frozen=True)
class Layout:
    """How an epoch's samples become batches.

    :param batch_size: samples of a batch, over all ranks
    :param samples: of an epoch; None when not known beforehand, which only one rank alone can
        work with
    :param drop_last: leave a last batch out that is not full
    """

    batch_size: int
    samples: int | None = None
    share: Share = Share()
    drop_last: bool = False

    def __post_init__(self):
        if self.samples is None and not self.share.alone:
            raise DatasetError(
                "several ranks or workers need the number of samples of every shard, which a "
                "dataset without hapi-dataset.json does not tell; pack it with 'hapi put', or "
                "have them counted (SwiftDataset(count=True))"
            )

    @property
    def step_count(self) -> int | None:
        """Of an epoch; the same for every rank."""
        if self.samples is None:
            return None
        whole, rest = divmod(self.samples, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def steps(self, begin: int) -> Iterator[Step]:
        """This share's steps from the sample ``begin`` on; endless when it is not known how many
        there are."""
        step, share = begin // self.batch_size, self.share
        while self.step_count is None or step < self.step_count:
            if share.has_step(step):
                total = self.batch_size
                if self.samples is not None:
                    total = min(total, self.samples - step * self.batch_size)
                low, high = share.slots(total)
                yield Step(step, total, high - low)
            step += 1

    def positions(self, window: Window, samples: int, start: int) -> np.ndarray:
        """Places in the window of this share's samples, in their order; int64.

        :param samples: of the window
        :param start: samples of the epoch before it
        """
        moved = np.arange(samples, dtype=np.int64)
        if window.seed is not None:
            moved = order.sample_order(
                window.seed, window.epoch, window.index, samples, start, self.batch_size
            )
        places = start + np.arange(samples, dtype=np.int64)
        wanted = places >= window.begin
        if not self.share.alone or self.drop_last and self.samples is not None:
            steps, slots = np.divmod(places, self.batch_size)
            total = np.minimum(self.batch_size, self.samples - steps * self.batch_size)
            low, high = self.share.slots(total)
            wanted &= (low <= slots) & (slots < high) & self.share.has_step(steps)
            if self.drop_last:
                wanted &= total == self.batch_size
        return moved[wanted]

    def pieces(self, window: Window) -> list[tuple[int, SampleRange | None]]:
        """What this share needs of the window: (index of the shard in it, range of its samples;
        None: all). Samples between the first and the last one needed are in the range."""
        whole = [(index, None) for index in range(len(window.shards))]
        if self.share.alone:
            return whole
        counts = [shard.samples for shard in window.shards]
        ends = np.cumsum(counts)
        positions = np.sort(self.positions(window, int(ends[-1]), window.start))
        found = []
        for index, (end, count) in enumerate(zip(ends, counts, strict=True)):
            low, high = np.searchsorted(positions, (end - count, end))
            if low == high:
                continue
            first, last = (int(positions[at] - (end - count)) for at in (low, high - 1))
            part = None if last - first + 1 == count else SampleRange(first, last)
            found.append((index, part))
        return found

    def jobs(
        self, windows: Sequence[Window], transform: Callable[[int], TransformSpec | None]
    ) -> Iterator[Job]:
        """What has to be read, in order.

        :param transform: of an epoch
        """
        for window in windows:
            spec = transform(window.epoch)
            for index, samples in self.pieces(window):
                yield Job(window.shards[index], window.epoch, spec, samples)
