"""One feature request on its way through the engine.

The order: the model is known and, if need be, loaded; the cut resolves and the transform's size
suits the model; sizes are within limits; the entity tag is known, so that ``If-None-Match`` can
be answered; then admission. All that happens before the first byte of the body is asked for
(``Expect: 100-continue``). After the body: find the samples, wait for work memory, decode and run
micro-batches, encode.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from swift_hapi.engine import answer, etag, sizing
from swift_hapi.engine.admission import Ticket
from swift_hapi.engine.ask import Ask
from swift_hapi.engine.body import blocks, content_length
from swift_hapi.engine.compute import Extracted, Work, extract
from swift_hapi.engine.engine import Engine
from swift_hapi.engine.loaded import LoadedModel
from swift_hapi.engine.responses import NoBody, Pieces, printable, trans_id
from swift_hapi.engine.sizing import Footprint
from swift_hapi.engine.timing import Spent
from swift_hapi.engine.workers import call
from swift_hapi.graph.cuts import Cut
from swift_hapi.protocol import headers
from swift_hapi.protocol.errors import (
    EngineBusy,
    ModelMismatch,
    ModelNotFound,
    UndecodableSample,
)
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import ShardContents, read_shard

LOG = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class _Plan:
    """What is to be computed, for samples of one shape."""

    shape: tuple[int, ...]
    cut: Cut
    footprint: Footprint
    micro_batch: int


class FeatureCall:
    """:param http: the request, its body unread
    :param ask: its headers, parsed
    """

    def __init__(self, engine: Engine, http: Request, ask: Ask):
        self._engine = engine
        self._http = http
        self._ask = ask
        self._admit_by = time.perf_counter() + engine.limits.admission_timeout
        self._spent = Spent()

    async def answer(self, held: AsyncExitStack) -> Response:
        """The whole way. What must be kept until the answer is sent goes into ``held``.

        :raises HapiError: whatever is wrong with request, object or load
        :raises ClientGone: the body ends early
        """
        engine, ask, limits = self._engine, self._ask, self._engine.limits
        engine.check_ready()
        length = None
        if self._http.method != "HEAD":
            length = content_length(self._http, limits.max_object_bytes, "object")
        with self._queueing():
            model = await held.enter_async_context(self._model())
        request = ask.request.with_model(model.digest)
        spec = request.transform
        shape = model.input_shape if spec is None else (3, *spec.size)
        plan = await self._before_admission(self._plan(model, shape))
        if request.samples is not None:
            wanted = request.samples.last - request.samples.first + 1
            sizing.check_output(wanted, plan.footprint, limits)

        tag = etag.feature_etag(request, plan.cut.name, ask.source_etag, engine.numerics)
        common = answer.common_headers(
            request, plan.cut.name, tag, ask.source_etag, engine.numerics
        )
        if etag.matches(ask.if_none_match, tag):
            return NoBody(common, status_code=304)
        if length is None:
            return NoBody({**common, headers.BATCH_SIZE: str(plan.micro_batch)})

        with self._queueing():
            ticket = await self._admit(length)
        held.callback(ticket.release)
        contents = await self._read_samples(length)
        if spec is None:
            plan = await self._plan(model, await self._stored_shape(contents, plan.shape))
        extracted = await self._extract(contents, plan, model, ticket)
        first = request.samples.first if request.samples else 0
        span = f"{first}-{first + len(contents.samples) - 1}/{contents.total}"
        used = min(plan.micro_batch, len(contents.samples))
        # The object's bytes, which the samples are views of, are needed no longer.
        del contents
        started = time.perf_counter()
        body, digest = await call(
            engine.workers.io, answer.encode, extracted, request, plan.cut.name
        )
        self._spent.encode = time.perf_counter() - started
        self._account_for(extracted, body)
        return Pieces(
            body,
            headers={
                **common,
                "Content-Type": headers.FEATURES_TYPE,
                headers.SAMPLES: span,
                headers.BATCH_SIZE: str(used),
                headers.CONTENT_DIGEST: digest,
                headers.SERVER_TIMING: self._spent.server_timing(),
            },
        )

    async def _before_admission(self, work: Coroutine[None, None, T]) -> T:
        """:raises EngineBusy: ``work`` is not done within the admission time"""
        try:
            return await asyncio.wait_for(work, max(0.0, self._admit_by - time.perf_counter()))
        except asyncio.TimeoutError:
            raise EngineBusy(
                "the engine is busy with other models", retry_after=self._engine.config.retry_after
            ) from None

    @contextlib.contextmanager
    def _queueing(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._spent.queue += time.perf_counter() - started

    @contextlib.asynccontextmanager
    async def _model(self) -> AsyncIterator[LoadedModel]:
        """The model asked for, kept in memory for the length of the block."""
        engine, reference = self._engine, self._ask.request.model
        file = engine.files.find(reference)
        if file is None:
            raise ModelNotFound(f"{headers.MODEL}: the engine has no model {reference}")
        async with AsyncExitStack() as stack:
            try:
                model = await stack.enter_async_context(
                    engine.memory.use(file, self._admit_by - time.perf_counter())
                )
            except (OSError, ModelMismatch) as error:
                LOG.error("model file %s cannot be used: %s", file.path, error)
                engine.files.cached.drop(file.hex)
                raise ModelNotFound(
                    f"{headers.MODEL}: the engine's file of {reference} is gone or damaged"
                ) from None
            yield model

    async def _plan(self, model: LoadedModel, shape: tuple[int, ...]) -> _Plan:
        """:param shape: of one decoded sample
        :raises BadCut: the split names no cut
        :raises BadTransform: the shape does not suit the model
        :raises TooLarge: not even one sample fits into memory
        """
        engine, request = self._engine, self._ask.request
        cut = await model.cut(request.split, shape)
        footprint = await model.footprint(cut, shape)
        micro_batch = sizing.micro_batch(
            request.batch_size, engine.config.batch_size, footprint, engine.admission.shares
        )
        return _Plan(shape, cut, footprint, micro_batch)

    async def _stored_shape(
        self, contents: ShardContents, declared: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Shape of the first stored tensor that can be read; without one, the model's."""
        workers, limits = self._engine.workers, self._engine.limits
        for sample in contents.samples:
            with contextlib.suppress(UndecodableSample):
                return (await call(workers.decode, decode_sample, sample, None, limits)).shape
        return declared

    async def _admit(self, length: int) -> Ticket:
        ticket = await self._engine.admission.admit(
            self._ask.account,
            sizing.OBJECT_COPIES * length,
            self._admit_by - time.perf_counter(),
        )
        self._engine.metrics.admitted.inc()
        return ticket

    async def _read_samples(self, length: int) -> ShardContents:
        engine, ask = self._engine, self._ask
        started = time.perf_counter()
        chunks: list[bytes] = []
        async for more in blocks(self._http):
            chunks += more
        data = b"".join(chunks)
        del chunks
        self._spent.read = time.perf_counter() - started
        engine.metrics.bytes_in.inc(length)
        return await call(
            engine.workers.decode, read_shard, data, ask.name, engine.limits, ask.request.samples
        )

    async def _extract(
        self, contents: ShardContents, plan: _Plan, model: LoadedModel, ticket: Ticket
    ) -> Extracted:
        engine, request = self._engine, self._ask.request
        count = len(contents.samples)
        sizing.check_output(count, plan.footprint, engine.limits)
        with self._queueing():
            await ticket.work_memory(sizing.work_memory(count, plan.micro_batch, plan.footprint))
        work = Work(
            samples=contents.samples,
            spec=request.transform,
            limits=engine.limits,
            head=await model.head(plan.cut),
            in_shape=plan.shape,
            out_shape=plan.cut.shape,
            micro_batch=plan.micro_batch,
            report=request.on_error == "report",
        )
        return await extract(engine.workers, work, self._spent)

    def _account_for(self, extracted: Extracted, body: bytes) -> None:
        """Metrics and the log's line."""
        metrics, spent = self._engine.metrics, self._spent
        for stage, seconds in spent.seconds().items():
            metrics.stage.labels(stage).observe(seconds)
        for size in spent.batches:
            metrics.micro_batch.observe(size)
        metrics.samples.inc(len(extracted.samples))
        metrics.sample_errors.inc(len(extracted.errors))
        metrics.bytes_out.inc(len(body))
        LOG.info(
            "%s account=%s object=%s model=%s split=%s samples=%d errors=%d bytes=%d %s",
            trans_id(self._http),
            printable(self._ask.account),
            printable(self._ask.path),
            self._ask.request.model[:19],
            self._ask.request.split,
            len(extracted.samples),
            len(extracted.errors),
            len(body),
            " ".join(f"{stage}={value:.3f}" for stage, value in spent.seconds().items()),
        )
