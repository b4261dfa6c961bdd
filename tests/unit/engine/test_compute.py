"""Micro-batches of one engine's requests, without the HTTP around them."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
import torch

from swift_hapi.engine.compute import Work, extract
from swift_hapi.engine.timing import Spent
from swift_hapi.engine.workers import Workers
from swift_hapi.protocol.errors import HapiError
from swift_hapi.protocol.limits import Limits
from swift_hapi.samples.shard import RawSample
from tests.unit.engine.conftest import npy

SHAPE = (1, 4, 4)


@pytest.fixture
def workers():
    made = Workers(cpus=1, decoders=2)
    yield made
    made.shutdown()


def samples(values) -> list[RawSample]:
    return [
        RawSample(i, str(i), -1, "tensor", memoryview(npy(np.full(SHAPE, v, np.float32))))
        for i, v in enumerate(values)
    ]


def work(values, head, micro_batch: int = 2, out_shape=(1,)) -> Work:
    return Work(samples(values), None, Limits(), head, SHAPE, out_shape, micro_batch, False)


def test_requests_take_turns(workers):
    order, gate = [], threading.Event()

    def head(batch: torch.Tensor) -> torch.Tensor:
        # The first batch waits until both requests have handed one in.
        gate.wait(60)
        order.append("a" if batch.max() < 100 else "b")
        return batch.mean((1, 2, 3))[:, None]

    async def story():
        tasks = [
            asyncio.create_task(extract(workers, work(values, head), Spent()))
            for values in (range(8), range(100, 108))
        ]
        while workers.infer._work_queue.qsize() < 1:
            await asyncio.sleep(0.001)
        gate.set()
        return await asyncio.gather(*tasks)

    first, second = asyncio.run(story())
    assert order in (list("abababab"), list("babababa"))
    assert first.features.ravel().tolist() == list(range(8))
    assert second.features.ravel().tolist() == list(range(100, 108))


def test_micro_batches_are_cut_by_position(workers):
    sizes = []

    def head(batch: torch.Tensor) -> torch.Tensor:
        sizes.append(len(batch))
        return batch.mean((1, 2, 3))[:, None]

    spent = Spent()
    asyncio.run(extract(workers, work(range(7), head, micro_batch=3), spent))
    assert sizes == spent.batches == [3, 3, 1]


def test_a_head_that_breaks_its_word_is_no_answer(workers):
    for head in (lambda b: b, lambda b: b.double().mean((1, 2, 3))[:, None]):
        with pytest.raises(HapiError, match="where float32"):
            asyncio.run(extract(workers, work(range(3), head), Spent()))


def test_no_head_gives_the_decoded_input(workers):
    done = asyncio.run(extract(workers, work(range(5), None, out_shape=SHAPE), Spent()))
    assert done.features.shape == (5, *SHAPE)
    assert done.features[:, 0, 0, 0].tolist() == list(range(5))


def test_cancelled_request_stops_after_its_micro_batch(workers):
    running, may_end = threading.Event(), threading.Event()
    ran = []

    def head(batch: torch.Tensor) -> torch.Tensor:
        ran.append(len(batch))
        running.set()
        may_end.wait(60)
        return batch.mean((1, 2, 3))[:, None]

    async def story():
        task = asyncio.create_task(extract(workers, work(range(10), head), Spent()))
        await asyncio.to_thread(running.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert ran == [2]
