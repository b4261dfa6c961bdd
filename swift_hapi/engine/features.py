"""``POST`` and ``HEAD /v1/features``: an object's bytes in, features out.

The order of a request: headers are parsed; the model is known and, if need be, loaded; the cut
resolves and the transform's size suits the model; sizes are within limits; the entity tag is
known, so that ``If-None-Match`` can be answered; then admission. All that happens before the
first byte of the body is asked for (``Expect: 100-continue``). After the body: find the samples,
wait for work memory, decode and run micro-batches, encode.

``Server-Timing``, in milliseconds: ``queue`` (for admission, memory and the inference thread),
``read`` (body), ``decode`` (summed over threads), ``infer`` (inside the head), ``encode``
(payload, coding, digest). Decoding overlaps inference: they do not add up to the whole.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import zstandard
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from swift_hapi.engine import etag, sizing
from swift_hapi.engine.admission import Ticket
from swift_hapi.engine.body import blocks, content_length
from swift_hapi.engine.compute import Extracted, Spent, Work, extract
from swift_hapi.engine.engine import Engine
from swift_hapi.engine.guard import guarded
from swift_hapi.engine.loaded import LoadedModel
from swift_hapi.engine.metrics import STAGES
from swift_hapi.engine.responses import NoBody, Pieces, close_if_unread, printable, trans_id
from swift_hapi.engine.workers import call
from swift_hapi.graph.cuts import Cut
from swift_hapi.protocol import headers, payload
from swift_hapi.protocol.digest import content_digest
from swift_hapi.protocol.errors import (
    BadHeader,
    EngineBusy,
    ModelMismatch,
    ModelNotFound,
    UndecodableSample,
)
from swift_hapi.protocol.headers import FeatureRequest
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import ShardContents, read_shard

LOG = logging.getLogger(__name__)
VARY = ", ".join(
    (
        "Accept-Encoding",
        headers.MODEL,
        headers.SPLIT,
        headers.TRANSFORM,
        headers.SAMPLES,
        headers.DTYPE,
        headers.BATCH_SIZE,
        headers.ON_ERROR,
        headers.MODEL_CONTAINER,
    )
)


@dataclass(frozen=True)
class Ask:
    """One request's headers, parsed. ``name`` is the object's name within its container."""

    request: FeatureRequest
    account: str
    path: str
    source_etag: str
    if_none_match: str | None
    deadline: float

    @property
    def name(self) -> str:
        parts = unquote(self.path).split("/", 4)  # /v1/account/container/object
        return parts[4] if len(parts) == 5 and parts[4] else unquote(self.path)


def parse(request: Request, deadline: float) -> Ask:
    """:raises BadHeader: naming the header"""
    get = request.headers.get
    source_etag = get(headers.SOURCE_ETAG)
    if not source_etag:
        raise BadHeader(f"{headers.SOURCE_ETAG} is missing: it tells versions of an object apart")
    asked = get(headers.DEADLINE)
    if asked is not None:
        try:
            seconds = float(asked)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < float("inf"):
            raise BadHeader(f"{headers.DEADLINE}: {asked!r} is no number of seconds above 0")
        deadline = min(deadline, seconds)
    return Ask(
        request=FeatureRequest.from_headers(get),
        account=get(headers.ACCOUNT, "-"),
        path=get(headers.OBJECT, "-"),
        source_etag=source_etag,
        if_none_match=get("If-None-Match"),
        deadline=deadline,
    )


def _encode(features: payload.Features, encoding: str) -> tuple[bytes, str]:
    """(body as sent, its Content-Digest); runs in a thread."""
    body = payload.encode(features)
    if encoding == "zstd":
        # One frame with its size, level 1: higher levels make features no smaller.
        body = zstandard.ZstdCompressor(level=1).compress(body)
    return body, content_digest(body)


class FeaturesEndpoint:
    """ASGI application of the route."""

    def __init__(self, engine: Engine):
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        connection = request.state.connection
        ask = parse(request, self._engine.limits.deadline)
        call_ = FeatureCall(self._engine, request, ask)
        async with AsyncExitStack() as held:
            response = await guarded(call_.answer(held), connection.gone, ask.deadline)
            close_if_unread(request, response)
            # Place and memory are held until the client has the answer, so it must take it.
            sending = asyncio.ensure_future(response(scope, receive, send))
            done, _ = await asyncio.wait({sending}, timeout=self._engine.limits.deadline)
            if not done:
                LOG.warning("%s: the client does not take its answer", trans_id(request))
                connection.abort()
            await sending


class FeatureCall:
    """One request on its way."""

    def __init__(self, engine: Engine, http: Request, ask: Ask):
        self._engine = engine
        self._http = http
        self._ask = ask
        self._admit_by = time.perf_counter() + engine.limits.admission_timeout
        self._spent = Spent()
        self._queue = self._read = self._encode = 0.0

    async def answer(self, held: AsyncExitStack) -> Response:
        """All of it. What must be kept until the answer is sent goes into ``held``."""
        engine, ask, limits = self._engine, self._ask, self._engine.limits
        if not engine.ready:
            raise EngineBusy("the engine warms up", retry_after=engine.config.retry_after)
        length = None
        if self._http.method != "HEAD":
            length = content_length(self._http, limits.max_object_bytes, "object")
        model = await held.enter_async_context(self._model())
        request = ask.request.with_model(model.digest)
        shape = self._asked_shape(model)
        cut = await model.cut(request.split, shape)
        size = await model.footprint(cut, shape)
        batch = self._micro_batch(size)
        if request.samples is not None:
            count = request.samples.last - request.samples.first + 1
            sizing.check_output(count, size, limits)

        tag = etag.feature_etag(request, cut.name, ask.source_etag, engine.numerics)
        common = self._common_headers(request, cut, tag)
        if etag.matches(ask.if_none_match, tag):
            return NoBody(common, status_code=304)
        if length is None:
            return NoBody({**common, headers.BATCH_SIZE: str(batch)})

        ticket = await self._admit(length)
        held.callback(ticket.release)
        contents = await self._read_samples(length)
        if request.transform is None:
            shape = await self._stored_shape(contents, shape)
            cut = await model.cut(cut.name, shape)
            size = await model.footprint(cut, shape)
            batch = self._micro_batch(size)
        count = len(contents.samples)
        sizing.check_output(count, size, limits)
        waited = time.perf_counter()
        await ticket.work_memory(sizing.work_memory(count, batch, size))
        self._queue += time.perf_counter() - waited
        work = Work(
            samples=contents.samples,
            spec=request.transform,
            limits=limits,
            head=await model.head(cut),
            in_shape=shape,
            out_shape=cut.shape,
            micro_batch=batch,
            report=request.on_error == "report",
        )
        extracted = await extract(engine.workers, work, self._spent)
        # The object's bytes are needed no longer.
        total, first = contents.total, request.samples.first if request.samples else 0
        del contents, work
        body, digest = await self._encoded(extracted, request, cut)
        response_headers = {
            **common,
            "Content-Type": headers.FEATURES_TYPE,
            headers.SAMPLES: f"{first}-{first + count - 1}/{total}",
            headers.BATCH_SIZE: str(min(batch, count)),
            headers.CONTENT_DIGEST: digest,
            headers.SERVER_TIMING: self._server_timing(),
        }
        self._count(extracted, body)
        return Pieces(body, headers=response_headers)

    @asynccontextmanager
    async def _model(self):
        """The loaded model, kept in memory for the length of the block."""
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
                LOG.error("model %s cannot be loaded: %s", file.path, error)
                engine.files.cached.drop(file.hex)
                raise ModelNotFound(
                    f"{headers.MODEL}: the engine's file of {reference} is gone or damaged"
                ) from None
            yield model

    def _asked_shape(self, model: LoadedModel) -> tuple[int, ...]:
        """Shape of a transformed image; without a transform, what the model was made for."""
        spec = self._ask.request.transform
        return model.input_shape if spec is None else (3, *spec.size)

    async def _stored_shape(self, contents: ShardContents, declared: tuple[int, ...]):
        """Shape of the first stored tensor that can be read."""
        for sample in contents.samples:
            if sample.kind != "tensor" or sample.error is not None:
                continue
            try:
                array = await call(
                    self._engine.workers.decode, decode_sample, sample, None, self._engine.limits
                )
            except UndecodableSample:
                continue
            return array.shape
        return declared

    def _micro_batch(self, size: sizing.Footprint) -> int:
        engine = self._engine
        return sizing.micro_batch(
            self._ask.request.batch_size, engine.config.batch_size, size, engine.admission.shares
        )

    def _common_headers(self, request: FeatureRequest, cut: Cut, tag: str) -> dict[str, str]:
        """What a 200, a 304 and the answer to HEAD have in common."""
        common = {
            "ETag": tag,
            "Vary": VARY,
            headers.NUMERICS: self._engine.numerics,
            headers.SOURCE_ETAG: self._ask.source_etag,
            headers.MODEL: request.model,
            headers.SPLIT: cut.name,
            headers.DTYPE: request.dtype,
            headers.CACHE: "miss",
        }
        if request.encoding != "identity":
            common["Content-Encoding"] = request.encoding
        return common

    async def _admit(self, length: int) -> Ticket:
        started = time.perf_counter()
        ticket = await self._engine.admission.admit(
            self._ask.account, sizing.OBJECT_COPIES * length, self._admit_by - started
        )
        self._engine.metrics.admitted.inc()
        self._queue += time.perf_counter() - started
        return ticket

    async def _read_samples(self, length: int) -> ShardContents:
        engine, ask = self._engine, self._ask
        started = time.perf_counter()
        chunks: list[bytes] = []
        async for more in blocks(self._http):
            chunks += more
        data = b"".join(chunks)
        del chunks
        self._read = time.perf_counter() - started
        engine.metrics.bytes_in.inc(length)
        return await call(
            engine.workers.decode, read_shard, data, ask.name, engine.limits, ask.request.samples
        )

    async def _encoded(self, extracted: Extracted, request: FeatureRequest, cut: Cut):
        """(body, Content-Digest)"""
        started = time.perf_counter()
        features = payload.Features(
            features=extracted.features,
            index=np.array([sample.index for sample in extracted.samples], dtype=np.int64),
            label=np.array([sample.label for sample in extracted.samples], dtype=np.int64),
            keys=tuple(sample.key for sample in extracted.samples),
            cut=cut.name,
            model=request.model,
            errors=extracted.errors,
        )
        result = await call(self._engine.workers.io, _encode, features, request.encoding)
        self._encode = time.perf_counter() - started
        return result

    def _seconds(self) -> dict[str, float]:
        spent = self._spent
        values = self._queue + spent.queue, self._read, spent.decode, spent.infer, self._encode
        return dict(zip(STAGES, values, strict=True))

    def _server_timing(self) -> str:
        return ", ".join(f"{k};dur={v * 1000:.3f}" for k, v in self._seconds().items())

    def _count(self, extracted: Extracted, body: bytes) -> None:
        metrics, seconds = self._engine.metrics, self._seconds()
        for stage, value in seconds.items():
            metrics.stage.labels(stage).observe(value)
        for size in self._spent.batches:
            metrics.micro_batch.observe(size)
        metrics.samples.inc(len(extracted.samples))
        metrics.sample_errors.inc(len(extracted.errors))
        metrics.bytes_out.inc(len(body))
        LOG.info(
            "%s account=%s object=%s model=%s samples=%d errors=%d bytes=%d %s",
            trans_id(self._http),
            printable(self._ask.account),
            printable(self._ask.path),
            self._ask.request.model[:19],
            len(extracted.samples),
            len(extracted.errors),
            len(body),
            " ".join(f"{stage}={value:.3f}" for stage, value in seconds.items()),
        )
