from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hapi_compute.data import order
from hapi_compute.data.batches import Loader, sequential_windows, training_windows
from hapi_compute.data.errors import DatasetError
from hapi_compute.data.fetcher import Fetcher
from hapi_compute.data.listing import Dataset, Shard
from hapi_compute.data.readers import ArrayRows
from hapi_compute.data.shards import Job, ShardSamples
from hapi_compute.store.names import SwiftUrl


def shape_1(cut):
    return (1,)


def shape_3(cut):
    return (3,)


class Numbers:
    """Sample j of shard i is the number 1000 * i + j."""

    def __init__(self, fail: str | None = None, delay=lambda: None):
        self.fail = fail
        self.read_names: list[str] = []
        self.delay = delay

    def expected_bytes(self, shard):
        return shard.bytes

    def read(self, job, sleep):
        self.delay()
        self.read_names.append(job.shard.name)
        if job.shard.name == self.fail:
            raise DatasetError(f"{self.fail} is broken")
        count = job.shard.bytes
        values = 1000 * int(job.shard.name) + np.arange(count)
        rows = ArrayRows((values[:2, None].astype(np.float32), values[2:, None].astype("f4")), "x")
        return ShardSamples(rows, tuple(map(str, values)), values, 10, storage={"infer": 0.5})


def dataset(*sizes: int, known: bool = True) -> Dataset:
    shards = tuple(
        Shard(str(i), "e", size, size if known else None) for i, size in enumerate(sizes)
    )
    return Dataset(SwiftUrl("c"), shards, ())


def load(windows, batch_size=4, reader=None, epochs=1, concurrency=2):
    """[batches of each epoch], totals of the last."""
    jobs = [Job(shard, window.epoch, None) for window in windows for shard in window.shards]
    fetcher = Fetcher(jobs, reader or Numbers(), concurrency=concurrency)
    with ThreadPoolExecutor(2) as pool:
        with Loader(
            windows, fetcher, batch_size=batch_size, shape_of=shape_1, pool=pool
        ) as loader:
            return [list(loader.epoch()) for _ in range(epochs)], loader.totals


def keys(batches) -> list[str]:
    return [key for batch in batches for key in batch.keys]


def test_in_order_with_a_last_partial_batch():
    data = dataset(3, 5, 2)
    (batches,), totals = load(sequential_windows(data))
    assert [len(batch.keys) for batch in batches] == [4, 4, 2]
    assert keys(batches) == ["0", "1", "2", *map(str, range(1000, 1005)), "2000", "2001"]
    for batch in batches:
        assert batch.data.dtype == np.float32 and batch.data.shape == (len(batch.keys), 1)
        np.testing.assert_array_equal(batch.data[:, 0], batch.labels)
        assert [str(label) for label in batch.labels] == list(batch.keys)
    assert (totals.shards, totals.samples, totals.bytes_received) == (3, 10, 30)
    assert totals.storage == {"infer": 1.5}


def test_shuffle_is_window_by_window():
    data = dataset(4, 4, 4, 4, 4)
    (batches,), _ = load(training_windows(data, seed=3, epoch=1, width=2), batch_size=8)
    shards = order.shard_order(3, 1, 5)
    expected = []
    for index, start in enumerate((0, 2, 4)):
        names = [1000 * int(s) + j for s in shards[start : start + 2] for j in range(4)]
        expected += [str(names[i]) for i in order.sample_order(3, 1, index, len(names))]
    assert keys(batches) == expected
    assert sorted(keys(batches)) == sorted(str(1000 * i + j) for i in range(5) for j in range(4))


def test_order_does_not_depend_on_batch_size_or_threads():
    windows = training_windows(dataset(7, 3, 5, 6), 0, 0, 3)
    orders = {
        tuple(keys(load(windows, batch_size, concurrency=threads)[0][0]))
        for batch_size, threads in ((1, 1), (4, 3), (100, 2))
    }
    assert len(orders) == 1


def test_epochs_follow_each_other():
    data = dataset(3, 3)
    windows = [w for epoch in range(3) for w in training_windows(data, 0, epoch, 2)]
    epochs, totals = load(windows, epochs=3)
    assert all(sorted(keys(e)) == sorted(keys(epochs[0])) for e in epochs)
    assert len({tuple(keys(e)) for e in epochs}) > 1
    assert all([len(b.keys) for b in e] == [4, 2] for e in epochs)
    assert totals.samples == 6


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("skip", [0, 1, 4, 8, 11, 12, 16, 20])
def test_skipping_leaves_the_rest_as_it_is(known, skip):
    data = dataset(4, 4, 4, 4, 4, known=known)
    whole = keys(load(training_windows(data, 5, 0, 2))[0][0])
    reader = Numbers()
    rest = keys(load(training_windows(data, 5, 0, 2, skip), reader=reader)[0][0])
    assert rest == whole[skip:]
    if known:
        assert len(reader.read_names) == 5 - min(2, skip // 8) * 2
    else:
        assert len(reader.read_names) == 5


def test_failure_reaches_the_consumer_after_what_was_good():
    windows = sequential_windows(dataset(4, 4, 4))
    jobs = [Job(shard, 0, None) for window in windows for shard in window.shards]
    with ThreadPoolExecutor(1) as pool:
        fetcher = Fetcher(jobs, Numbers(fail="1"))
        with Loader(windows, fetcher, batch_size=4, shape_of=shape_1, pool=pool) as loader:
            batches = loader.epoch()
            assert next(batches).keys[0] == "0"
            with pytest.raises(DatasetError, match="1 is broken"):
                next(batches)


def test_rows_of_another_shape_are_an_error():
    windows = sequential_windows(dataset(4))
    with ThreadPoolExecutor(1) as pool:
        fetcher = Fetcher([Job(windows[0].shards[0], 0, None)], Numbers())
        with Loader(windows, fetcher, batch_size=4, shape_of=shape_3, pool=pool) as loader:
            with pytest.raises(DatasetError, match="shape"):
                list(loader.epoch())


def test_closing_in_the_middle_leaves_no_thread():
    before = set(threading.enumerate())
    windows = sequential_windows(dataset(*[4] * 50))
    jobs = [Job(shard, 0, None) for window in windows for shard in window.shards]
    with ThreadPoolExecutor(1) as pool:
        fetcher = Fetcher(jobs, Numbers())
        with Loader(windows, fetcher, batch_size=2, shape_of=shape_1, pool=pool) as loader:
            next(loader.epoch())
    assert set(threading.enumerate()) == before
