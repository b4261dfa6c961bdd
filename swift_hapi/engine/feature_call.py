"""One feature request on its way through the engine.

The order: the account's limits; the model is known; the cut resolves and the transform's size
suits the model; sizes are within limits; the entity tag is known, so that ``If-None-Match`` can
be answered; then admission. All that happens before the first byte of the body is asked for
(``Expect: 100-continue``). After the body: find the samples, have them go through micro-batches,
encode.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import TypeVar

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from swift_hapi.engine import answer, etag, sizing
from swift_hapi.engine.accounts import Usage
from swift_hapi.engine.ask import Ask
from swift_hapi.engine.body import content_length, read_body
from swift_hapi.engine.control import Ticket
from swift_hapi.engine.engine import Engine
from swift_hapi.engine.job import Extracted, Job, Work
from swift_hapi.engine.loaded import LoadedModel
from swift_hapi.engine.model_files import ModelFile
from swift_hapi.engine.planning import Plan, make_plan
from swift_hapi.engine.responses import NoBody, Pieces, printable, trans_id
from swift_hapi.engine.timing import Spent
from swift_hapi.engine.turns import ON_BEHALF_OF
from swift_hapi.engine.workers import call
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
_numbers = itertools.count(1)
_SOON = 2  #: seconds after which to try again, when no queue tells better


class FeatureCall:
    """:param http: the request, its body unread
    :param ask: its headers, parsed
    """

    def __init__(self, engine: Engine, http: Request, ask: Ask):
        self._engine = engine
        self._http = http
        self._ask = ask
        self._id = str(next(_numbers))
        self._admit_by = time.perf_counter() + engine.limits.admission_timeout
        # Work of requests that fail or are given up is their account's, too.
        self._spent = Spent(charge=lambda cpu: engine.charge(ask.account, Usage(cpu_seconds=cpu)))

    async def answer(self, held: AsyncExitStack) -> Response:
        """The whole way. What must be kept until the answer is sent goes into ``held``.

        :raises HapiError: whatever is wrong with request, object or load
        :raises ClientGone: the body ends early
        """
        engine, ask, limits = self._engine, self._ask, self._engine.limits
        ON_BEHALF_OF.set(ask.account)
        engine.check_ready()
        length = None
        if self._http.method != "HEAD":
            length = content_length(self._http, limits.max_object_bytes, "object")
        engine.accounts.enter(ask.account)
        held.callback(engine.accounts.leave, ask.account)
        with self._queueing():
            file, model = await self._model()
        request = ask.request.with_model(model.digest)
        spec = request.transform
        shape = model.input_shape if spec is None else (3, *spec.size)
        plan = await self._before_admission(make_plan(engine, ask, file, model, shape))
        if request.samples is not None:
            wanted = request.samples.last - request.samples.first + 1
            sizing.check_output(wanted, plan.footprint, limits)

        tag = etag.feature_etag(
            request, plan.cut.name, ask.source_etag, engine.numerics, plan.lane.padded
        )
        common = answer.common_headers(
            request, plan.cut.name, tag, ask.source_etag, engine.numerics
        )
        if etag.matches(ask.if_none_match, tag):
            return NoBody(common, status_code=304)
        if length is None:
            return NoBody({**common, headers.BATCH_SIZE: str(plan.lane.spec.b_max)})

        with self._queueing():
            await self._admit(length, model, held)
        contents = await self._read_samples(length)
        if spec is None:
            shape = await self._stored_shape(contents, plan.shape)
            plan = await make_plan(engine, ask, file, model, shape)
        try:
            extracted = await self._extract(contents, plan)
        except ModelNotFound:
            engine.lose(file)
            raise
        first = request.samples.first if request.samples else 0
        span = f"{first}-{first + len(contents.samples) - 1}/{contents.total}"
        # The object's bytes, which the samples are views of, are needed no longer.
        del contents
        engine.driver.release_input(self._id)
        body = await self._encode(extracted, plan)
        self._account_for(extracted, length, body)
        return Pieces(
            body.pieces,
            headers={
                **common,
                "Content-Type": headers.FEATURES_TYPE,
                "Content-Length": str(body.length),
                headers.SAMPLES: span,
                headers.BATCH_SIZE: str(plan.lane.padded or max(self._spent.batches, default=1)),
                headers.CONTENT_DIGEST: body.digest,
                headers.SERVER_TIMING: self._spent.server_timing(),
            },
        )

    async def _before_admission(self, work: Coroutine[None, None, T]) -> T:
        """:raises EngineBusy: ``work`` is not done within the admission time"""
        try:
            return await asyncio.wait_for(work, max(0.0, self._admit_by - time.perf_counter()))
        except asyncio.TimeoutError:
            raise EngineBusy("the engine is busy with other models", retry_after=_SOON) from None

    @contextlib.contextmanager
    def _queueing(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._spent.queue += time.perf_counter() - started

    async def _model(self) -> tuple[ModelFile, LoadedModel]:
        engine, reference = self._engine, self._ask.request.model
        file = engine.files.find(reference)
        if file is None:
            raise ModelNotFound(f"{headers.MODEL}: the engine has no model {reference}")
        try:
            return file, await engine.memory.get(file, self._admit_by - time.perf_counter())
        except (OSError, ModelMismatch) as error:
            LOG.error("model file %s cannot be used: %s", file.path, error)
            engine.lose(file)
            raise ModelNotFound(
                f"{headers.MODEL}: the engine's file of {reference} is gone or damaged"
            ) from None

    async def _stored_shape(
        self, contents: ShardContents, declared: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Shape of the first stored tensor that can be read; without one, the model's."""
        workers, limits = self._engine.workers, self._engine.limits
        for sample in contents.samples:
            with contextlib.suppress(UndecodableSample):
                return (await call(workers.decode, decode_sample, sample, None, limits)).shape
        return declared

    async def _admit(self, length: int, model: LoadedModel, held: AsyncExitStack) -> None:
        engine, account = self._engine, self._ask.account
        held.callback(engine.driver.depart, self._id)
        ticket = Ticket(self._id, account, length, digest=model.digest)
        patience = self._admit_by - time.perf_counter()
        await engine.driver.admit(ticket, patience, model.weight_bytes)
        engine.metrics.admitted.inc()

    async def _read_samples(self, length: int) -> ShardContents:
        engine, ask = self._engine, self._ask
        started = time.perf_counter()
        data = await read_body(self._http, length)
        self._spent.read = time.perf_counter() - started
        engine.metrics.bytes_in.inc(length)
        engine.charge(ask.account, Usage(bytes_in=length))
        return await call(
            engine.workers.decode, read_shard, data, ask.name, engine.limits, ask.request.samples
        )

    async def _extract(self, contents: ShardContents, plan: Plan) -> Extracted:
        engine, request = self._engine, self._ask.request
        count = len(contents.samples)
        sizing.check_output(count, plan.footprint, engine.limits)
        work = Work(
            samples=contents.samples,
            spec=request.transform,
            limits=engine.limits,
            in_shape=plan.shape,
            in_dtype=plan.dtype,
            out_shape=plan.cut.shape,
            out_dtype=plan.dtype if plan.lane.key.pixels else np.dtype(plan.cut.dtype),
            report=request.on_error == "report",
            ids_below=plan.ids_below,
        )
        job = Job(self._id, self._ask.account, work, self._spent)
        size = sizing.output_bytes(count, plan.footprint, request)
        return await engine.driver.run(job, plan.lane, size)

    async def _encode(self, extracted: Extracted, plan: Plan) -> answer.Body:
        cpu = 0.0

        def encode() -> answer.Body:
            nonlocal cpu
            began = time.thread_time()
            try:
                return answer.encode(extracted, request, plan.cut.name)
            finally:
                cpu = time.thread_time() - began

        request = self._ask.request.with_model(plan.lane.key.digest)
        started = time.perf_counter()
        try:
            return await call(self._engine.workers.io, encode)
        finally:
            self._spent.encode = time.perf_counter() - started
            self._spent.use(cpu)

    def _account_for(self, extracted: Extracted, length: int, body: answer.Body) -> None:
        """Metrics and the log's line."""
        engine, spent, account = self._engine, self._spent, self._ask.account
        metrics = engine.metrics
        for stage, seconds in spent.seconds().items():
            metrics.stage.labels(stage).observe(seconds)
        metrics.sample_errors.inc(len(extracted.errors))
        # A request, and each of its samples, is counted when it is done, not while it may fail.
        usage = Usage(requests=1, samples=len(extracted.keys), bytes_out=body.length)
        metrics.computed(engine.model_label(self._ask.request.model), usage)
        engine.charge(account, usage)
        LOG.info(
            "%s account=%s object=%s model=%s split=%s samples=%d errors=%d in=%d bytes=%d "
            "cpu=%.3f %s",
            trans_id(self._http),
            printable(account),
            printable(self._ask.path),
            self._ask.request.model[:19],
            self._ask.request.split,
            len(extracted.keys),
            len(extracted.errors),
            length,
            body.length,
            spent.cpu,
            " ".join(f"{stage}={value:.3f}" for stage, value in spent.seconds().items()),
        )
