from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hapi_compute.data import order
from hapi_compute.data.batches import Loader
from hapi_compute.data.errors import DatasetError
from hapi_compute.data.fetcher import Fetcher
from hapi_compute.data.listing import Dataset, Shard
from hapi_compute.data.rows import ArrayRows
from hapi_compute.data.shards import ShardSamples
from hapi_compute.data.windows import Layout, Share, sequential_windows, training_windows
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
        self.samples_read = 0

    def expected_bytes(self, job):
        return job.shard.bytes

    def read(self, job, sleep):
        self.delay()
        self.read_names.append(job.shard.name)
        if job.shard.name == self.fail:
            raise DatasetError(f"{self.fail} is broken")
        count = job.shard.bytes
        values = 1000 * int(job.shard.name) + np.arange(count)
        first = 0
        if job.samples is not None:
            first = job.samples.first
            values = values[first : job.samples.last + 1]
        self.samples_read += len(values)
        rows = ArrayRows((values[:2, None].astype(np.float32), values[2:, None].astype("f4")), "x")
        return ShardSamples(
            rows, tuple(map(str, values)), values, 10, storage={"infer": 0.5}, first=first
        )


def dataset(*sizes: int, known: bool = True) -> Dataset:
    shards = tuple(
        Shard(str(i), "e", size, size if known else None) for i, size in enumerate(sizes)
    )
    return Dataset(SwiftUrl("c"), shards, ())


def load(windows, batch_size=4, reader=None, epochs=1, concurrency=2, layout=None):
    """[batches of each epoch], totals of the last."""
    layout = layout or Layout(batch_size)
    jobs = layout.jobs(windows, lambda epoch: None)
    fetcher = Fetcher(jobs, reader or Numbers(), concurrency=concurrency)
    with ThreadPoolExecutor(2) as pool:
        with Loader(windows, fetcher, layout, shape_of=shape_1, pool=pool) as loader:
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
        moved = order.sample_order(3, 1, index, len(names), 8 * index, 8)
        expected += [str(names[i]) for i in moved]
    assert keys(batches) == expected
    assert sorted(keys(batches)) == sorted(str(1000 * i + j) for i in range(5) for j in range(4))


def test_order_does_not_depend_on_threads():
    windows = training_windows(dataset(7, 3, 5, 6), 0, 0, 3)
    orders = {
        tuple(keys(load(windows, concurrency=threads)[0][0])) for threads in (1, 2, 3)
    }
    assert len(orders) == 1


@pytest.mark.parametrize("sizes", [(7, 3, 5, 6), (4,), (2, 30, 1), (1,) * 13])
@pytest.mark.parametrize("batch_size", [1, 4, 6, 40])
@pytest.mark.parametrize("begin", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_shares_make_the_batches_of_one(sizes, batch_size, begin, drop_last):
    """Whatever the numbers of ranks and workers: equal steps, every sample once, same batches."""
    data = dataset(*sizes)
    windows = training_windows(data, 5, 2, 2, begin * batch_size)

    def batches(share):
        layout = Layout(batch_size, data.samples, share, drop_last)
        return load(windows, layout=layout)[0][0], layout

    alone, layout = batches(Share())
    assert [b.step for b in alone] == list(range(begin, layout.step_count))
    for ranks, workers in ((2, 1), (3, 2), (5, 1), (1, 3)):
        parts = {}
        for rank in range(ranks):
            steps = []
            for worker in range(workers):
                found, _ = batches(Share(rank, ranks, worker, workers, first_step=begin))
                assert [b.step for b in found] == [b.step for b in alone][worker::workers]
                steps += [b.step for b in found]
                parts |= {(b.step, rank): b for b in found}
            assert sorted(steps) == [b.step for b in alone]
        for batch in alone:
            mine = [parts[batch.step, rank] for rank in range(ranks)]
            assert [k for part in mine for k in part.keys] == list(batch.keys)
            sizes_ = [len(part.keys) for part in mine]
            assert max(sizes_) - min(sizes_) <= 1 and all(b.total == batch.total for b in mine)
            values = [part.data for b in mine for part in b.parts]
            np.testing.assert_array_equal(np.concatenate(values)[:, 0], batch.labels)


def test_ranks_read_no_more_than_their_part():
    data = dataset(*[32] * 8)
    windows = training_windows(data, 0, 0, 4)
    for ranks in (2, 4, 3):
        readers = [Numbers() for _ in range(ranks)]
        for rank, reader in enumerate(readers):
            load(windows, reader=reader, layout=Layout(16, data.samples, Share(rank, ranks)))
        if ranks == 3:  # 16 samples in 3 parts: a shard may be read by two.
            assert sum(r.samples_read for r in readers) <= 256 + 8 * 6
        else:
            assert [r.samples_read for r in readers] == [256 // ranks] * ranks
            assert [len(r.read_names) for r in readers] == [8 // ranks] * ranks


def test_several_ranks_need_to_know_the_number_of_samples():
    with pytest.raises(DatasetError, match="number of samples"):
        Layout(4, None, Share(0, 2))
    with pytest.raises(ValueError, match="rank=2"):
        Share(2, 2)


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
    layout = Layout(4)
    with ThreadPoolExecutor(1) as pool:
        fetcher = Fetcher(layout.jobs(windows, lambda epoch: None), Numbers(fail="1"))
        with Loader(windows, fetcher, layout, shape_of=shape_1, pool=pool) as loader:
            batches = loader.epoch()
            assert next(batches).keys[0] == "0"
            with pytest.raises(DatasetError, match="1 is broken"):
                next(batches)


def test_rows_of_another_shape_are_an_error():
    windows = sequential_windows(dataset(4))
    with ThreadPoolExecutor(1) as pool:
        layout = Layout(4)
        fetcher = Fetcher(layout.jobs(windows, lambda epoch: None), Numbers())
        with Loader(windows, fetcher, layout, shape_of=shape_3, pool=pool) as loader:
            with pytest.raises(DatasetError, match="shape"):
                list(loader.epoch())


def test_closing_in_the_middle_leaves_no_thread():
    before = set(threading.enumerate())
    windows = sequential_windows(dataset(*[4] * 50))
    layout = Layout(2)
    with ThreadPoolExecutor(1) as pool:
        fetcher = Fetcher(layout.jobs(windows, lambda epoch: None), Numbers())
        with Loader(windows, fetcher, layout, shape_of=shape_1, pool=pool) as loader:
            next(loader.epoch())
    assert set(threading.enumerate()) == before
