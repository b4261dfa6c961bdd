"""One feature request's samples on their way through micro-batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from swift_hapi.engine import buffers
from swift_hapi.engine.timing import Spent
from swift_hapi.protocol.errors import HapiError, TooLarge, UndecodableSample
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.payload import SampleError
from swift_hapi.protocol.transform import TransformSpec
from swift_hapi.samples.shard import RawSample

#: What counts as the fault of one sample, to be left out under ``X-Hapi-On-Error: report``.
SAMPLE_FAULTS = (UndecodableSample, TooLarge)


@dataclass(frozen=True)
class Work:
    """What to do with one request's samples.

    :param in_shape: of one decoded sample
    :param in_dtype: uint8: images are wanted as pixels
    :param out_shape: of one sample's features, float32 unless nothing but decoding is asked for
    :param ids_below: of samples that are ids: each must be below this, if the model says so
    """

    samples: Sequence[RawSample]
    spec: TransformSpec | None
    limits: Limits
    in_shape: tuple[int, ...]
    in_dtype: np.dtype
    out_shape: tuple[int, ...]
    out_dtype: np.dtype
    report: bool
    ids_below: int | None = None

    @property
    def pixels(self) -> bool:
        return self.in_dtype == np.uint8


@dataclass(frozen=True)
class Extracted:
    """``features`` [n, *out_shape] of the n samples kept, in their order; ``index``, ``label``
    and ``keys`` are theirs."""

    features: np.ndarray
    index: np.ndarray
    label: np.ndarray
    keys: tuple[str, ...]
    errors: tuple[SampleError, ...]


class Job:
    """A request inside the driver.

    Event loop only, but for ``rows``, which the inference thread fills. ``over``: nothing more is
    to be done for it, it is done, has failed, or its client is gone.
    """

    def __init__(self, id_: str, account: str, work: Work, spent: Spent):
        self.id = id_
        self.account = account
        self.work = work
        self.spent = spent
        self.over = False
        self.queued_at: float | None = None
        self._rows: np.ndarray | None = None
        self._errors: dict[int, SampleError] = {}
        self._result: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def rows(self) -> np.ndarray:
        """Features of all samples by position, [n, *out_shape]; memory from the first use on.

        :raises OSError: there is none
        """
        if self._rows is None:
            shape = (len(self.work.samples), *self.work.out_shape)
            self._rows = buffers.array(shape, self.work.out_dtype)
        return self._rows

    def fault(self, position: int, error: HapiError) -> None:
        """A sample cannot be used."""
        if self.work.report and isinstance(error, SAMPLE_FAULTS):
            sample = self.work.samples[position]
            reason = str(error.members.get("reason", error.detail))
            self._errors[position] = SampleError(sample.index, sample.key, reason)
        else:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """The first failure is the one that counts."""
        self.over = True
        if not self._result.done():
            self._result.set_exception(error)

    def finish(self) -> None:
        """All samples are through."""
        self.over = True
        if not self._result.done():
            self._result.set_result(None)

    def leave(self) -> None:
        """Nobody waits for it any more."""
        self.over = True
        if not self._result.cancel() and not self._result.cancelled():
            self._result.exception()  # fetched, so that asyncio does not report it as lost

    async def result(self) -> Extracted:
        """Wait until all samples are through.

        :raises HapiError: what :meth:`fail` was told
        """
        await self._result
        samples, rows = self.work.samples, self.rows
        # They are views of the object, which is needed no longer.
        self.work = replace(self.work, samples=())
        if self._errors:
            good = [at for at in range(len(samples)) if at not in self._errors]
            samples, rows = [samples[at] for at in good], rows[good]
        return Extracted(
            features=rows,
            index=np.array([sample.index for sample in samples], dtype=np.int64),
            label=np.array([sample.label for sample in samples], dtype=np.int64),
            keys=tuple(sample.key for sample in samples),
            errors=tuple(error for _, error in sorted(self._errors.items())),
        )
