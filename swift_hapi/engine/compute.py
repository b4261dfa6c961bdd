"""Samples to features: decode, micro-batches, head.

A request's samples are cut into micro-batches by position, before anything is decoded: the same
request gives the same batches and hence the same bits, whatever else the engine does. While one
micro-batch is in the network the next one is decoded. Requests hand in one micro-batch at a time,
so the inference thread's queue goes round between them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from swift_hapi.engine.timing import Spent
from swift_hapi.engine.workers import Workers, call
from swift_hapi.protocol.errors import HapiError, TooLarge, UndecodableSample
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.payload import SampleError
from swift_hapi.protocol.transform import TransformSpec
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import RawSample

#: What counts as the fault of one sample, to be left out under ``X-Hapi-On-Error: report``.
SAMPLE_FAULTS = (UndecodableSample, TooLarge)


@dataclass(frozen=True)
class Work:
    """What to do with one request's samples.

    ``head`` maps float32 [b, *in_shape] to float32 [b, *out_shape]; None is the cut ``input``,
    where both shapes are equal.
    """

    samples: Sequence[RawSample]
    spec: TransformSpec | None
    limits: Limits
    head: Callable[[torch.Tensor], torch.Tensor] | None
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    micro_batch: int
    report: bool


@dataclass(frozen=True)
class Extracted:
    """``features`` float32 [n, *out_shape] of the n ``samples`` kept, in their order."""

    features: np.ndarray
    samples: tuple[RawSample, ...]
    errors: tuple[SampleError, ...]


def _decode_into(row: np.ndarray, sample: RawSample, work: Work) -> tuple[HapiError | None, float]:
    """Decode one sample into its row of the micro-batch; runs in a decoding thread."""
    started = time.perf_counter()
    fault = None
    try:
        array = decode_sample(sample, work.spec, work.limits)
        if array.shape != row.shape or array.dtype != row.dtype:
            reason = f"{array.dtype}{list(array.shape)} where {row.dtype}{list(row.shape)} is due"
            raise UndecodableSample(
                f"sample {sample.index} ({sample.key}): {reason}",
                sample=sample.index,
                key=sample.key,
                reason=reason,
            )
        row[...] = array
    except HapiError as error:
        fault = error
    return fault, time.perf_counter() - started


async def _decode_batch(workers: Workers, chunk: Sequence[RawSample], work: Work, spent: Spent):
    """(float32 [kept, *in_shape], kept samples, errors) of one micro-batch."""
    batch = np.empty((len(chunk), *work.in_shape), dtype=np.float32)
    results = await asyncio.gather(
        *(
            call(workers.decode, _decode_into, row, sample, work)
            for row, sample in zip(batch, chunk, strict=True)
        )
    )
    spent.decode += sum(seconds for _, seconds in results)
    faults = [fault for fault, _ in results]
    for fault in faults:
        if fault is not None and not (work.report and isinstance(fault, SAMPLE_FAULTS)):
            raise fault
    good = [i for i, fault in enumerate(faults) if fault is None]
    errors = [
        SampleError(sample.index, sample.key, str(fault.members.get("reason", fault.detail)))
        for sample, fault in zip(chunk, faults, strict=True)
        if fault is not None
    ]
    kept = [chunk[i] for i in good]
    return (batch if len(good) == len(chunk) else batch[good]), kept, errors


def _infer(batch: np.ndarray, out: np.ndarray, work: Work, spent: Spent, submitted: float) -> None:
    """Run the head on one micro-batch; the only place where the engine runs a network."""
    started = time.perf_counter()
    spent.queue += started - submitted
    result = work.head(torch.from_numpy(batch))
    if result.shape != out.shape or result.dtype != torch.float32:
        raise HapiError(
            f"head gave {result.dtype}{list(result.shape)} where float32{list(out.shape)} was due"
        )
    torch.from_numpy(out).copy_(result)
    spent.infer += time.perf_counter() - started


async def extract(workers: Workers, work: Work, spent: Spent) -> Extracted:
    """Features of all samples of ``work``; times are added to ``spent``.

    :raises UndecodableSample: the first bad sample, unless ``work.report``
    :raises TooLarge: a sample has too many pixels, unless ``work.report``
    :raises BadTransform: transform and samples do not suit each other
    """
    size = work.micro_batch
    chunks = [work.samples[i : i + size] for i in range(0, len(work.samples), size)]
    out = np.empty((len(work.samples), *work.out_shape), dtype=np.float32)
    kept: list[RawSample] = []
    errors: list[SampleError] = []

    def decode(index: int) -> asyncio.Task | None:
        if index >= len(chunks):
            return None
        return asyncio.create_task(_decode_batch(workers, chunks[index], work, spent))

    ahead = decode(0)
    try:
        for index in range(len(chunks)):
            batch, samples, faults = await ahead
            ahead = decode(index + 1)
            errors += faults
            if samples:
                rows = out[len(kept) : len(kept) + len(samples)]
                if work.head is None:
                    await call(workers.io, np.copyto, rows, batch)
                else:
                    now = time.perf_counter()
                    await call(workers.infer, _infer, batch, rows, work, spent, now)
                spent.batches.append(len(samples))
                kept += samples
    finally:
        if ahead is not None:
            ahead.cancel()
            # Its threads write into its buffers until they are done; its error, if any, comes
            # too late to be told.
            await asyncio.gather(ahead, return_exceptions=True)
    return Extracted(out[: len(kept)], tuple(kept), tuple(errors))
