"""Shards to training batches: window shuffle, batching across shards, decoding ahead.

::

    windows -> Fetcher -> permute the window's samples -> cut into batches -> load rows in a pool

What is in which batch, and which part of it is ours, :mod:`hapi_compute.data.windows` says.

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

from hapi_compute.data.fetcher import Fetcher
from hapi_compute.data.shards import ShardSamples
from hapi_compute.data.windows import Layout, Step, Window

_POLL = 0.1


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

    There is one part, unless the split moved between two of the batch's shards; none, if the
    batch is smaller than there are ranks and has nothing for this one. ``total`` counts the
    samples of all ranks in ``step`` of the epoch.
    """

    parts: tuple[Part, ...]
    labels: np.ndarray
    keys: tuple[str, ...]
    step: int = 0
    total: int = 0

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
    step: int = 0,
    total: int | None = None,
) -> Pending:
    """A batch of the samples at ``places``, (shard, row) each, in that order.

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
    total = len(places) if total is None else total
    return Pending(Batch(parts, labels, keys, step, total), tuple(futures))


@dataclass(frozen=True)
class _End:
    totals: EpochTotals | None
    error: BaseException | None = None


class Loader:
    """Batches of several epochs, prepared ahead, across the end of an epoch too.

    :param windows: of all epochs, one after the other
    :param fetcher: of ``layout.jobs(windows, ...)``
    :param layout: what becomes of their samples
    :param shape_of: cut (None: decoded samples) to the shape of one sample there
    :param pool: loads rows (decodes); shared with others
    :param ahead: batches prepared before they are asked for
    """

    def __init__(
        self,
        windows: Sequence[Window],
        fetcher: Fetcher,
        layout: Layout,
        *,
        shape_of: Callable[[str | None], tuple[int, ...]],
        pool: Executor,
        ahead: int = 2,
    ):
        self._windows = windows
        self._fetcher = fetcher
        self._layout = layout
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
        run: list[Window] = []
        for window in self._windows:
            run.append(window)
            if window.last:
                yield from self._epoch_items(run)
                run = []

    def _epoch_items(self, windows: list[Window]) -> Iterator[Pending | _End]:
        totals = EpochTotals()
        waiting: list[tuple[ShardSamples, int]] = []
        steps = self._layout.steps(windows[0].begin)
        step = next(steps, None)
        start = windows[0].start or 0
        for window in windows:
            count, found = self._read(window, start, totals)
            start += count
            waiting += found
            del found
            while step is not None and len(waiting) >= step.own:
                yield self._gather(step, waiting)
                step = next(steps, None)
        if waiting and self._layout.samples is None and not self._layout.drop_last:
            yield self._gather(Step(step.step, len(waiting), len(waiting)), waiting)
        yield _End(totals)

    def _read(
        self, window: Window, start: int, totals: EpochTotals
    ) -> tuple[int, list[tuple[ShardSamples, int]]]:
        """Samples of the window, and (shard, row) of those that are wanted, in order."""
        shards = {}
        for index, _ in self._layout.pieces(window):
            shards[index] = next(self._fetcher)
            totals.add(shards[index])
        counts = [
            len(shards[index]) if shard.samples is None else shard.samples
            for index, shard in enumerate(window.shards)
        ]
        ends = np.cumsum(counts)
        count = int(ends[-1])
        positions = self._layout.positions(window, count, start)
        found = []
        owners = np.searchsorted(ends, positions, side="right")
        for position, index in zip(positions.tolist(), owners.tolist(), strict=True):
            shard = shards[index]
            row = position - (int(ends[index]) - counts[index]) - shard.first
            found.append((shard, row))
        return count, found

    def _gather(self, step: Step, waiting: list[tuple[ShardSamples, int]]) -> Pending:
        places = waiting[: step.own]
        del waiting[: step.own]
        return gather(places, self._shape_of, self._pool, step.step, step.total)
