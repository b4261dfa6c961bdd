"""Shards to training batches: window shuffle, batching across shards, decoding ahead.

::

    windows -> Fetcher -> permute the window's samples -> cut into batches -> load rows in a pool

A background thread drives this, a few batches ahead of the consumer. Memory is bounded by one
window, the fetcher's prefetch and the batches ahead.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

import numpy as np

from hapi_compute.data import order
from hapi_compute.data.fetcher import Fetcher
from hapi_compute.data.listing import Dataset, Shard
from hapi_compute.data.shards import ShardSamples

_POLL = 0.1


@dataclass(frozen=True)
class Window:
    """Shards whose samples are shuffled together.

    ``seed`` None keeps the order of the shards; ``skip`` samples at the head are left out;
    ``last`` closes the epoch.
    """

    epoch: int
    index: int
    shards: tuple[Shard, ...]
    seed: int | None = None
    skip: int = 0
    last: bool = False

    @property
    def samples(self) -> int | None:
        counts = [shard.samples for shard in self.shards]
        return None if None in counts else sum(counts)


def training_windows(
    dataset: Dataset, seed: int, epoch: int, width: int, skip: int = 0
) -> list[Window]:
    """The windows of one epoch.

    :param skip: samples at the epoch's start that have been trained on already; windows that lie
        wholly before are left out where their sizes are known
    """
    runs = order.windows(order.shard_order(seed, epoch, len(dataset.shards)), width)
    result = []
    for index, run in enumerate(runs):
        shards = tuple(dataset.shards[i] for i in run)
        window = Window(epoch, index, shards, seed, skip, index == len(runs) - 1)
        if not window.last and window.samples is not None and window.samples <= skip:
            skip -= window.samples
            continue
        result.append(window)
        skip = 0  # The loader carries over what reaches beyond this window.
    return result


def sequential_windows(dataset: Dataset) -> list[Window]:
    """One shard after the other, in listing order."""
    last = len(dataset.shards) - 1
    return [Window(0, i, (shard,), last=i == last) for i, shard in enumerate(dataset.shards)]


@dataclass(frozen=True)
class Part:
    """The rows of a batch that were taken at one cut (None: decoded samples).

    ``rows`` int64 [m], places in the batch, ascending; ``data`` float32 [m, ...].
    """

    cut: str | None
    rows: np.ndarray
    data: np.ndarray


@dataclass(frozen=True)
class Batch:
    """``parts`` that together are n samples, ``labels`` int64 [n], ``keys`` n strings.

    There is one part, unless the split moved between two of the batch's shards.
    """

    parts: tuple[Part, ...]
    labels: np.ndarray
    keys: tuple[str, ...]

    @property
    def data(self) -> np.ndarray:
        """Of a batch with one part; float32 [n, ...]."""
        (part,) = self.parts
        return part.data


@dataclass
class EpochTotals:
    """What an epoch's shards brought; complete when the epoch's batches are."""

    shards: int = 0
    samples: int = 0
    bytes_received: int = 0
    fallbacks: int = 0
    storage: dict[str, float] = field(default_factory=dict)

    def add(self, shard: ShardSamples) -> None:
        self.shards += 1
        self.samples += len(shard)
        self.bytes_received += shard.bytes_received
        self.fallbacks += shard.fallback
        for step, seconds in shard.storage.items():
            self.storage[step] = self.storage.get(step, 0.0) + seconds


@dataclass(frozen=True)
class Pending:
    """A batch whose rows are being loaded."""

    made: Batch
    futures: tuple[Future, ...]

    def batch(self) -> Batch:
        """Wait for it.

        :raises HapiError: what loading a row raised
        """
        for future in self.futures:
            future.result()
        return self.made


def gather(
    places: Sequence[tuple[ShardSamples, int]],
    shape_of: Callable[[str | None], tuple[int, ...]],
    pool: Executor,
) -> Pending:
    """A batch of the samples at ``places``, in that order.

    :param shape_of: cut (None: decoded samples) to the shape of one sample there
    """
    labels = np.array([shard.labels[row] for shard, row in places], dtype=np.int64)
    keys = tuple(shard.keys[row] for shard, row in places)
    by_cut: dict[str | None, list[int]] = {}
    for place, (shard, _) in enumerate(places):
        by_cut.setdefault(shard.cut, []).append(place)
    parts = tuple(
        Part(
            cut,
            np.array(rows, dtype=np.int64),
            np.empty((len(rows), *shape_of(cut)), dtype=np.float32),
        )
        for cut, rows in by_cut.items()
    )
    futures = []
    for part in parts:
        for place, out in zip(part.rows, part.data, strict=True):
            shard, row = places[place]
            futures.append(pool.submit(shard.rows.load, row, out))
    return Pending(Batch(parts, labels, keys), tuple(futures))


@dataclass(frozen=True)
class _End:
    totals: EpochTotals | None
    error: BaseException | None = None


class Loader:
    """Batches of several epochs, prepared ahead, across the end of an epoch too.

    :param windows: of all epochs, one after the other
    :param jobs: from :func:`jobs_of`, in the order of ``windows``
    :param shape_of: cut (None: decoded samples) to the shape of one sample there
    :param pool: loads rows (decodes); shared with others
    :param ahead: batches prepared before they are asked for
    """

    def __init__(
        self,
        windows: Sequence[Window],
        fetcher: Fetcher,
        *,
        batch_size: int,
        shape_of: Callable[[str | None], tuple[int, ...]],
        pool: Executor,
        ahead: int = 2,
    ):
        self._windows = windows
        self._fetcher = fetcher
        self._batch_size = batch_size
        self._shape_of = shape_of
        self._pool = pool
        self._queue: queue.Queue = queue.Queue(ahead)
        self._stop = threading.Event()
        self.totals = EpochTotals()
        self._thread = threading.Thread(target=self._drive, name="hapi-loader", daemon=True)
        self._thread.start()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_exc) -> None:
        self.close()

    def close(self) -> None:
        self._stop.set()
        self._fetcher.close()
        self._thread.join(5)

    def epoch(self) -> Iterator[Batch]:
        """The batches of the next epoch; after the last one, ``totals`` are that epoch's.

        :raises HapiError: what any stage raised
        """
        while True:
            item = self._queue.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                self.totals = item.totals
                return
            yield item.batch()

    def _put(self, item) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=_POLL)
                return True
            except queue.Full:
                continue
        return False

    def _drive(self) -> None:
        try:
            for item in self._items():
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001 - carried to the consumer
            self._put(_End(None, error))

    def _items(self) -> Iterator[Pending | _End]:
        totals = EpochTotals()
        waiting: list[tuple[ShardSamples, int]] = []
        skip_left = 0
        for window in self._windows:
            shards = [next(self._fetcher) for _ in window.shards]
            for shard in shards:
                totals.add(shard)
            places = [(shard, row) for shard in shards for row in range(len(shard))]
            del shards
            if window.seed is not None:
                moved = order.sample_order(window.seed, window.epoch, window.index, len(places))
                places = [places[i] for i in moved]
            skip = window.skip + skip_left
            skip_left = max(0, skip - len(places))
            waiting += places[skip:]
            del places
            while len(waiting) >= self._batch_size:
                yield gather(waiting[: self._batch_size], self._shape_of, self._pool)
                del waiting[: self._batch_size]
            if window.last:
                if waiting:
                    yield gather(waiting, self._shape_of, self._pool)
                waiting = []
                yield _End(totals)
                totals, skip_left = EpochTotals(), 0
