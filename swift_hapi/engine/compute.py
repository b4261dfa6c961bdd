"""One micro-batch: decode its samples, run the head, hand the rows to their requests.

The samples may belong to several requests. What is wrong with one of them concerns its own
request only; the others go on without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from swift_hapi.engine.buffers import Scratch
from swift_hapi.engine.decoding import Slot, decode_some
from swift_hapi.engine.device import AllocationFailed, Device
from swift_hapi.engine.job import Job
from swift_hapi.engine.network import Stint
from swift_hapi.engine.workers import Workers, call
from swift_hapi.graph.failures import Abandoned, is_allocation_failure
from swift_hapi.graph.memory import HeadMemory
from swift_hapi.graph.program import Before
from swift_hapi.protocol.errors import HapiError, ModelInvalid

#: takes a batch, and what it is to call before every node
Head = Callable[[torch.Tensor, Before], torch.Tensor]
#: images are decoded into the layout in which the network wants them, height, width, channels
_IMAGE = 3
#: what a network raises that runs on meta tensors, but not on these samples
_MODEL_FAULTS = (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError)


@dataclass(frozen=True)
class Cost:
    """Seconds of a micro-batch: in the network, and decoding (summed over threads).

    :param ran: samples that the network was run on
    :param whole: False: the run was given up
    """

    infer: float
    decode: float
    ran: int = 0
    whole: bool = True


@dataclass(frozen=True)
class Manners:
    """How a run behaves towards others.

    :param patience: seconds after which it makes way for others, between two nodes
    :param overrun: told, in the network's thread, that it has had as much
    """

    patience: float = math.inf
    overrun: Callable[[], None] = lambda: None


#: of who need not think of others
ALONE = Manners()


@contextlib.contextmanager
def batch_array(
    scratch: Scratch, size: int, shape: tuple[int, ...], dtype: np.dtype
) -> Iterator[np.ndarray]:
    """[size, *shape]; images lie in memory with their channels last.

    :raises OSError: there is no memory (ENOMEM)
    """
    if len(shape) != _IMAGE:
        with scratch.array((size, *shape), dtype) as batch:
            yield batch
        return
    channels, height, width = shape
    with scratch.array((size, height, width, channels), dtype) as batch:
        yield batch.transpose(0, 3, 1, 2)


def _runs(slots: Sequence[Slot]) -> Iterator[tuple[Job, int, int, int]]:
    """(job, position, row, count) of neighbours in the batch that are neighbours in their job."""
    start = 0
    for at in range(1, len(slots) + 1):
        first = slots[start]
        if (
            at < len(slots)
            and slots[at].job is first.job
            and slots[at].position == first.position + at - start
        ):
            continue
        yield first.job, first.position, start, at - start
        start = at


def _scatter(result: torch.Tensor | np.ndarray, slots: Sequence[Slot]) -> None:
    for job, position, row, count in _runs(slots):
        if job.over:
            continue
        target, source = job.rows[position : position + count], result[row : row + count]
        if source.shape != target.shape:
            raise HapiError(
                f"head gave {list(source.shape)} where {list(target.shape)} was due"
            )
        if isinstance(source, torch.Tensor):
            torch.from_numpy(target).copy_(source)
        else:
            np.copyto(target, source)


def _infer(
    device: Device,
    head: Head | None,
    batch: np.ndarray,
    slots: Sequence[Slot],
    memory: HeadMemory | None,
    stint: Stint,
) -> bool:
    """Run the head; the only place where the engine runs a network. It is given up, and its
    memory free, soon after the last request has left.

    :returns: whether it was run to its end
    """
    jobs = tuple({id(slot.job): slot.job for slot in slots}.values())

    def go_on(at: int = 0) -> None:
        if all(job.over for job in jobs):
            raise Abandoned
        stint.make_way()

    if head is None:
        _scatter(batch, slots)
    else:
        try:
            result = device.run(head, torch.from_numpy(batch), memory, go_on)
        except Abandoned:
            return False
        except _MODEL_FAULTS as error:
            if is_allocation_failure(error):
                raise
            why = str(error)[:200]
            raise ModelInvalid(f"the network fails on these samples: {why}") from error
        if result.dtype != torch.float32:
            raise HapiError(f"head gave {result.dtype} where float32 was due")
        _scatter(result, slots)
    return True


async def run_batch(
    workers: Workers,
    device: Device,
    scratch: Scratch,
    slots: list[Slot],
    head: Awaitable[Head | None],
    before: asyncio.Future[None] | None,
    padded: int = 0,
    memory: HeadMemory | None = None,
    manners: Manners = ALONE,
) -> Cost:
    """Run one micro-batch; its requests get their rows, their faults, and their times.

    :param slots: all of one lane
    :param head: the network, maybe still being loaded; None gives the decoded input
    :param before: done when the lane's previous micro-batch has been through here, if there is one
    :param padded: rows to run in any case; what is beyond the samples is zeros
    :param memory: what the network needs
    :param manners: towards other micro-batches
    :raises AllocationFailed: there is not enough memory; nothing has been handed out
    :raises HapiError: no sample can be had from ``head``
    """
    work = slots[0].job.work
    size = max(len(slots), padded)
    try:
        with batch_array(scratch, size, work.in_shape, work.in_dtype) as batch:
            return await _run(
                workers, device, batch, slots, head, before, padded, memory, manners
            )
    except (MemoryError, RuntimeError, OSError) as error:
        if is_allocation_failure(error):
            raise AllocationFailed(str(error)) from error
        raise


async def _run(workers, device, batch, slots, head, before, padded, memory, manners) -> Cost:
    turns = iter(range(len(slots)))
    threads, admit = min(workers.decoders, len(slots)), workers.pixels.taken
    decoding = [
        asyncio.ensure_future(call(workers.decode, decode_some, turns, batch, slots, admit))
        for _ in range(threads)
    ]
    try:
        await asyncio.gather(*decoding)
        network = await head
        # Faults are told in the order of the samples, whatever threads did.
        if before is not None:
            await asyncio.shield(before)
    finally:
        await asyncio.gather(*decoding, return_exceptions=True)
    decoded = 0.0
    for slot in slots:
        decoded += slot.seconds
        slot.job.spent.decode += slot.seconds
        slot.job.spent.use(slot.cpu)
        if slot.fault is not None and not slot.job.over:
            slot.job.fault(slot.position, slot.fault)
    good = [at for at, slot in enumerate(slots) if slot.fault is None and not slot.job.over]
    if not good:
        return Cost(0.0, decoded)
    if len(good) < len(slots):
        for row, at in enumerate(good):
            if row != at:
                batch[row] = batch[at]
        slots = [slots[at] for at in good]
    size = max(len(slots), padded)
    batch[len(slots) : size] = 0

    def infer() -> tuple[bool, float, float]:
        stint = Stint(workers.infer, manners.patience, manners.overrun)
        whole = _infer(device, network, batch[:size], slots, memory, stint)
        return whole, *stint.spent()

    whole, seconds, cpu = await call(workers.infer, infer)
    _share(slots, seconds, cpu * workers.cpus)
    return Cost(seconds, decoded, len(slots), whole)


def _share(slots: list[Slot], seconds: float, cpu: float) -> None:
    """Every sample has the same part of the network's time."""
    seen: set[int] = set()
    for slot in slots:
        spent = slot.job.spent
        spent.infer += seconds / len(slots)
        spent.use(cpu / len(slots))
        if id(slot.job) not in seen:
            seen.add(id(slot.job))
            spent.batches.append(len(slots))
