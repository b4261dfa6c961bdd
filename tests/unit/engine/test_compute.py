"""One micro-batch of several requests, without the HTTP around it."""

from __future__ import annotations

import asyncio
import threading
import weakref

import numpy as np
import pytest
import torch

from swift_hapi.engine import decoding
from swift_hapi.engine.buffers import Scratch
from swift_hapi.engine.compute import AllocationFailed, Slot, batch_array, run_batch
from swift_hapi.engine.device import Device
from swift_hapi.engine.job import Job, Work
from swift_hapi.engine.timing import Spent
from swift_hapi.graph import ir
from swift_hapi.graph.failures import is_allocation_failure
from swift_hapi.graph.program import Program
from swift_hapi.protocol.errors import HapiError, ModelInvalid, UndecodableSample
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import parse_transform
from swift_hapi.samples.room import Room
from swift_hapi.samples.shard import RawSample
from tests.unit.engine.conftest import jpeg, npy

SHAPE = (1, 4, 4)
FLOAT = np.dtype(np.float32)


def means(batch: torch.Tensor, before=None) -> torch.Tensor:
    return batch.mean((1, 2, 3))[:, None]


def job(name: str, values, out_shape=(1,), report: bool = False) -> Job:
    """A request for tensors filled with ``values``; None is a damaged one."""
    samples = [
        RawSample(
            i, f"{name}{i}", i, "tensor",
            memoryview(b"\x93NUMPY?" if v is None else npy(np.full(SHAPE, v, np.float32))),
        )
        for i, v in enumerate(values)
    ]  # fmt: skip
    work = Work(samples, None, Limits(), SHAPE, FLOAT, out_shape, FLOAT, report)
    return Job(name, "AUTH_x", work, Spent())


def slots(job: Job, *positions: int) -> list[Slot]:
    return [Slot(job, at) for at in positions or range(len(job.work.samples))]


async def done(value=None):
    return value


def run(workers, slots, head=means, padded=0):
    return run_batch(workers, Device("cpu"), Scratch(), slots, done(head), None, padded)


def test_rows_go_to_their_requests(workers):
    async def story():
        one, other = job("a", range(4)), job("b", range(10, 13))
        mixed = [*slots(one, 0, 1), *slots(other, 2), *slots(one, 3), *slots(other, 0, 1)]
        await run(workers, mixed)
        await run(workers, slots(one, 2))
        one.finish()
        other.finish()
        return await one.result(), await other.result(), one.spent, other.spent

    first, second, spent, others = asyncio.run(story())
    assert first.features.ravel().tolist() == [0, 1, 2, 3]
    assert second.features.ravel().tolist() == [10, 11, 12]
    assert first.keys == ("a0", "a1", "a2", "a3")
    assert spent.batches == [6, 1] and others.batches == [6]
    assert spent.infer > 0 and others.infer > 0 and spent.decode > 0 and spent.cpu > 0


def test_a_bad_sample_concerns_its_own_request_only(workers):
    async def story():
        bad, good, lenient = job("a", [1, None, 3]), job("b", [5, 6]), job("c", [None, 8, 9],
                                                                           report=True)
        await run(workers, [*slots(bad), *slots(good), *slots(lenient)])
        good.finish()
        lenient.finish()
        with pytest.raises(UndecodableSample) as caught:
            await bad.result()
        return caught.value, await good.result(), await lenient.result(), good.spent

    error, good, lenient, spent = asyncio.run(story())
    assert error.members["sample"] == 1 and error.members["key"] == "a1"
    assert good.features.ravel().tolist() == [5, 6]
    assert lenient.features.ravel().tolist() == [8, 9]
    assert lenient.index.tolist() == [1, 2]
    assert [(fault.index, fault.key) for fault in lenient.errors] == [(0, "c0")]
    # What failed was not run.
    assert spent.batches == [4]


def test_a_defect_that_one_sample_sets_free_concerns_its_own_request_only(
    workers, monkeypatch, caplog
):
    real = decoding.decode_sample

    def defective(sample, *args):
        if sample.key in ("a1", "c0"):
            raise OverflowError("0x7f00: not for users")
        return real(sample, *args)

    monkeypatch.setattr(decoding, "decode_sample", defective)
    monkeypatch.setattr(decoding, "_told", set())

    async def story():
        bad, good, lenient = job("a", [1, 2]), job("b", [5, 6]), job("c", [7, 8], report=True)
        await run(workers, [*slots(bad), *slots(good), *slots(lenient)])
        good.finish()
        lenient.finish()
        with pytest.raises(UndecodableSample) as caught:
            await bad.result()
        return caught.value, await good.result(), await lenient.result()

    error, good, lenient = asyncio.run(story())
    assert error.detail == "sample 1 (a1): decoding fails: OverflowError"
    assert good.features.ravel().tolist() == [5, 6]
    assert lenient.features.ravel().tolist() == [8]
    assert [fault.reason for fault in lenient.errors] == ["decoding fails: OverflowError"]
    # With its traceback, and once.
    (record,) = caplog.records
    assert record.exc_info[0] is OverflowError and record.levelname == "ERROR"


def test_decoding_for_want_of_memory_is_no_fault_of_the_sample(workers, monkeypatch):
    def poor(*args):
        raise MemoryError

    monkeypatch.setattr(decoding, "decode_sample", poor)

    async def story():
        head = asyncio.ensure_future(done(means))
        await run_batch(workers, Device("cpu"), Scratch(), slots(job("a", [1])), head, None)

    with pytest.raises(AllocationFailed):
        asyncio.run(story())


def test_pictures_wait_until_there_is_memory_for_their_pixels(workers):
    """And those that need none, or less, go on."""
    workers.pixels = Room(1000)
    sample = RawSample(0, "k", 0, "image", memoryview(jpeg(1, 90, 80)))
    spec = parse_transform("crop=64")
    work = Work([sample], spec, Limits(), (3, 64, 64), FLOAT, (1,), FLOAT, False)

    async def story():
        large, other = Job("a", "AUTH_x", work, Spent()), job("b", [5])
        with workers.pixels.taken(1):
            running = asyncio.create_task(run(workers, slots(large)))
            while not workers.pixels._turn.locked():
                assert not running.done()
                await asyncio.sleep(0)
            await run(workers, slots(other))
            assert not running.done()
        await running
        large.finish()
        return (await large.result()).features

    assert asyncio.run(asyncio.wait_for(story(), 60)).shape == (1, 1)


def test_faults_are_told_in_order(workers):
    """A later micro-batch that is decoded first waits with its faults."""

    async def story():
        both = job("a", [None, None])
        before = asyncio.get_running_loop().create_future()
        late = asyncio.create_task(
            run_batch(workers, Device("cpu"), Scratch(), slots(both, 1), done(means), before)
        )
        await run(workers, slots(both, 0))
        before.set_result(None)
        await late
        with pytest.raises(UndecodableSample) as caught:
            await both.result()
        return caught.value.members["sample"]

    assert asyncio.run(story()) == 0


def test_who_has_left_is_not_decoded_nor_run(workers):
    ran = []

    def head(batch, before):
        ran.append(len(batch))
        return means(batch)

    async def story():
        gone, here = job("a", range(3)), job("b", range(2))
        gone.leave()
        await run(workers, [*slots(gone), *slots(here)], head)
        lost = await run(workers, slots(gone), head)
        here.finish()
        return await here.result(), gone.spent, lost

    result, spent, lost = asyncio.run(story())
    assert result.features.ravel().tolist() == [0, 1]
    assert ran == [2] and spent.decode == 0 and lost.infer == 0


def test_padding_is_zeros_and_not_handed_out(workers):
    seen = []

    def head(batch, before):
        seen.append(batch.clone())
        return means(batch)

    async def story():
        made = job("a", [7, None, 9], report=True)
        await run(workers, slots(made), head, padded=5)
        made.finish()
        return await made.result()

    result = asyncio.run(story())
    assert result.features.ravel().tolist() == [7, 9]
    assert seen[0].shape == (5, *SHAPE)
    assert seen[0].flatten(1).mean(1).tolist() == [7, 9, 0, 0, 0]


def test_a_head_that_breaks_its_word_is_no_answer(workers):
    for head in (lambda b, before: b, lambda b, before: b.double().mean((1, 2, 3))[:, None]):
        with pytest.raises(HapiError, match="was due"):
            asyncio.run(broken(workers, head))


async def broken(workers, head):
    await run(workers, slots(job("a", range(3))), head)


def test_no_head_gives_the_decoded_input(workers):
    async def story():
        made = job("a", range(5), out_shape=SHAPE)
        await run(workers, slots(made), None)
        made.finish()
        return await made.result()

    features = asyncio.run(story()).features
    assert features.shape == (5, *SHAPE)
    assert features[:, 0, 0, 0].tolist() == list(range(5))


def test_a_network_that_nobody_waits_for_is_given_up(workers):
    """A real network, stopped between two nodes while it runs; what it held is free then."""
    started, left = threading.Event(), threading.Event()
    ran, kept = [], []

    def step(x):
        ran.append(len(x))
        if len(ran) == 2:
            started.set()
            assert left.wait(60)
        out = x + 1
        kept.append(weakref.ref(out))
        return out

    nodes = [ir.Node(f"n{i}", ir.FUNCTION, "", (ir.Ref(f"n{i - 1}"),)) for i in range(1, 6)]
    program = Program(nodes, "n0", "n5", lambda node: step)

    async def story(leave: bool):
        ran.clear()
        one, other = job("a", range(3), SHAPE), job("b", range(2), SHAPE)
        running = asyncio.create_task(run(workers, [*slots(one), *slots(other)], program))
        await asyncio.to_thread(started.wait, 60)
        one.leave()
        if leave:
            other.leave()
        left.set()
        cost = await running
        other.finish()
        return cost, None if leave else (await other.result()).features

    cost, _ = asyncio.run(story(leave=True))
    assert ran == [5, 5] and cost.infer > 0
    assert [ref() for ref in kept] == [None] * 2
    started.clear()
    left.clear()
    cost, features = asyncio.run(story(leave=False))
    # Somebody still waits for it.
    assert ran == [5] * 5
    assert features[:, 0, 0, 0].tolist() == [5, 6]


def no_memory(batch, before):
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")


def test_allocation_failures_are_told_apart(workers):
    async def story(head):
        await run(workers, slots(job("a", range(2))), head)

    with pytest.raises(AllocationFailed):
        asyncio.run(story(no_memory))

    def bug(batch, before):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(ModelInvalid, match="the network fails on these samples: mat1"):
        asyncio.run(story(bug))


@pytest.mark.parametrize(
    "error, expected",
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (OSError(2, "No such file"), False),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("could not create a primitive"), True),
        (RuntimeError("could not create a primitive descriptor for the deconvolution"), False),
        (RuntimeError("shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_is_an_allocation_failure(error, expected):
    assert is_allocation_failure(error) is expected


def test_a_real_allocation_failure_is_recognised():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_allocation_failure(caught.value)


def test_images_are_decoded_into_the_layout_that_networks_want():
    scratch = Scratch()
    with batch_array(scratch, 2, (3, 8, 6), FLOAT) as batch:
        assert batch.shape == (2, 3, 8, 6)
        assert torch.from_numpy(batch).is_contiguous(memory_format=torch.channels_last)
    with batch_array(scratch, 2, (7,), np.dtype(np.int64)) as batch:
        assert batch.shape == (2, 7) and batch.dtype == np.int64


def test_scratch_is_used_again_but_not_twice_at_once():
    scratch, shape = Scratch(), (1 << 20,)
    with scratch.array(shape, FLOAT) as one, scratch.array(shape, FLOAT) as other:
        assert not np.shares_memory(one, other)
    with scratch.array((5,), FLOAT) as small:
        assert np.shares_memory(small, one) or np.shares_memory(small, other)


def test_decoding_goes_on_beside_the_network(workers):
    """The network waits for the decoding of the next micro-batch: only works if both overlap."""
    decoded, may_decode = threading.Event(), threading.Event()

    def slow(batch, before):
        may_decode.set()
        assert decoded.wait(60)
        return means(batch)

    async def told():
        decoded.set()
        return means

    async def story():
        first, second = job("a", [1]), job("b", [2])
        running = asyncio.create_task(run(workers, slots(first), slow))
        await asyncio.to_thread(may_decode.wait, 60)
        # Its head is asked for when its samples are decoded.
        await run_batch(workers, Device("cpu"), Scratch(), slots(second), told(), None)
        await running

    asyncio.run(asyncio.wait_for(story(), 60))
