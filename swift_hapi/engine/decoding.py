"""A micro-batch's samples become its rows, in several threads at once.

What is wrong with one of them concerns that sample only.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from swift_hapi.engine.job import Job
from swift_hapi.graph.failures import is_allocation_failure
from swift_hapi.protocol.errors import HapiError, UndecodableSample
from swift_hapi.samples.decode import Admit, decode_sample, undecodable

LOG = logging.getLogger(__name__)
#: kinds and places of errors that have been logged
_told: set[tuple[str, str, int | None]] = set()


@dataclass
class Slot:
    """One sample of a micro-batch: its request and its place there."""

    job: Job
    position: int
    fault: HapiError | None = None
    seconds: float = 0.0
    cpu: float = 0.0


def _decode(row: np.ndarray, slot: Slot, admit: Admit) -> None:
    work = slot.job.work
    sample = work.samples[slot.position]
    array = decode_sample(sample, work.spec, work.limits, work.pixels, admit)
    reason = None
    if array.shape != row.shape or array.dtype != row.dtype:
        reason = f"{array.dtype}{list(array.shape)} where {row.dtype}{list(row.shape)} is due"
    elif work.ids_below is not None and not 0 <= array.min() <= array.max() < work.ids_below:
        reason = f"holds an id that is none of 0 to {work.ids_below - 1}"
    if reason is not None:
        raise undecodable(sample, reason)
    row[...] = array


def _unforeseen(slot: Slot, error: Exception) -> UndecodableSample:
    """A defect of ours, but one that this sample sets free; others need not suffer from it."""
    sample, kind = slot.job.work.samples[slot.position], type(error).__name__
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = (kind, where.filename, where.lineno)
    if place not in _told:
        _told.add(place)
        LOG.error(
            "sample %d (%s) of %s (%s) cannot be decoded; further ones that fail alike are not "
            "reported", sample.index, sample.key, slot.job.id, slot.job.account, exc_info=error,
        )  # fmt: skip
    return undecodable(sample, f"decoding fails: {kind}")


def decode_some(
    turns: Iterator[int], batch: np.ndarray, slots: Sequence[Slot], admit: Admit
) -> None:
    """Decode samples until none is left; runs in several threads at once, which share
    ``turns``.

    :param batch: a row for each of ``slots``; a sample that cannot be used leaves its ``fault``
    :param admit: see :func:`~swift_hapi.samples.decode.decode_sample`
    :raises MemoryError: there is no memory, as other allocation failures
    """
    for at in turns:
        slot = slots[at]
        if slot.job.over:
            continue
        began, cpu = time.perf_counter(), time.thread_time()
        try:
            _decode(batch[at], slot, admit)
        except HapiError as fault:
            slot.fault = fault
        except Exception as error:  # noqa: BLE001 - logged, and told to its own request
            if is_allocation_failure(error):
                raise
            slot.fault = _unforeseen(slot, error)
        slot.seconds = time.perf_counter() - began
        slot.cpu = time.thread_time() - cpu
