"""``/v1/models``: which extractor files the engine has, and how it gets more.

``HEAD /v1/models/<ref>`` (64 hex digits or an operator's name) answers with the digest, the md5
and the scope of a file, or 404. ``PUT /v1/models/<hex>`` receives a file and checks that it has
that digest; ``POST /v1/models`` receives one whose digest is not known. A body is always read to
its end and checked, whatever the engine has already: a PUT is also how the filter has an
object's bytes compared with a digest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import weakref

from starlette.requests import Request
from starlette.responses import Response

from swift_hapi.engine.body import blocks, content_length
from swift_hapi.engine.engine import Engine
from swift_hapi.engine.guard import guarded
from swift_hapi.engine.model_files import ACCOUNT, ModelFile, Upload
from swift_hapi.engine.responses import NoBody
from swift_hapi.engine.turns import ON_BEHALF_OF
from swift_hapi.engine.workers import call
from swift_hapi.protocol import headers
from swift_hapi.protocol.errors import BadHeader, EngineBusy, ModelMismatch, ModelNotFound

LOG = logging.getLogger(__name__)
#: received at a time, and of one account: each is read whole into memory to be checked
_UPLOADS = 4
_UPLOADS_OF_ONE = 3
#: seconds after which to try again; and when the disk is full
_SOON, _FULL = 2, 30


def _describe(file: ModelFile) -> dict[str, str]:
    return {
        headers.MODEL: f"sha256:{file.hex}",
        headers.MODEL_MD5: file.md5,
        headers.MODEL_SCOPE: file.scope,
    }


class ModelEndpoints:
    """Handlers of the model routes."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self._uploading = asyncio.Semaphore(_UPLOADS)
        self._uploading_of: weakref.WeakValueDictionary[str, asyncio.Semaphore] = (
            weakref.WeakValueDictionary()
        )

    async def head(self, request: Request) -> Response:
        self._engine.check_ready()
        reference = request.path_params["reference"]
        file = self._engine.files.find(reference)
        if file is None:
            raise ModelNotFound(f"the engine has no model {reference}")
        return NoBody(_describe(file))

    async def put(self, request: Request) -> Response:
        hex_ = request.path_params["reference"]
        if not re.fullmatch(r"[0-9a-f]{64}", hex_):
            raise BadHeader(f"{hex_!r} is not the sha256 of a file in lower-case hex")
        return await self._receive(request, hex_)

    async def post(self, request: Request) -> Response:
        return await self._receive(request, None)

    async def _receive(self, request: Request, expected: str | None) -> Response:
        engine = self._engine
        ON_BEHALF_OF.set(request.headers.get(headers.ACCOUNT) or "-")
        engine.check_ready()
        length = content_length(request, engine.limits.max_model_bytes, "model")
        engine.files.cached.check_size(length)
        engine.memory.check_size(length)
        work = self._keep(request, expected)
        file = await guarded(work, request.state.connection.gone, engine.limits.deadline)
        return Response(status_code=201, headers=_describe(file))

    @contextlib.asynccontextmanager
    async def _place(self):
        """One of the few places for uploads, within the admission time; some are left to others
        than one account."""
        own = self._uploading_of.setdefault(
            ON_BEHALF_OF.get(), asyncio.Semaphore(_UPLOADS_OF_ONE)
        )
        async with contextlib.AsyncExitStack() as held:
            try:
                for places in (own, self._uploading):
                    await asyncio.wait_for(
                        places.acquire(), self._engine.limits.admission_timeout
                    )
                    held.callback(places.release)
            except asyncio.TimeoutError:
                raise EngineBusy("other models are being received", retry_after=_SOON) from None
            yield

    def _new_upload(self) -> Upload:
        try:
            return self._engine.files.cached.new_upload()
        except OSError as error:
            LOG.error("no model can be received: %s", error)
            raise EngineBusy(
                f"the node cannot keep the model: {error.strerror}", retry_after=_FULL
            ) from error

    async def _keep(self, request: Request, expected: str | None) -> ModelFile:
        """Receive, check and keep one file.

        :raises ModelMismatch: its digest is not ``expected``
        :raises ModelInvalid: it is no extractor
        :raises EngineBusy: there is no room on the disk
        """
        engine = self._engine
        io = engine.workers.io
        async with self._place():
            upload = self._new_upload()
            try:
                try:
                    async for chunks in blocks(request):
                        await call(io, upload.write, chunks)
                    await call(io, upload.finish)
                except OSError as error:
                    LOG.error("a model cannot be kept in %s: %s", upload.path.parent, error)
                    raise EngineBusy(
                        f"the node cannot keep the model: {error.strerror}", retry_after=_FULL
                    ) from error
                digests = upload.digests
                if expected is not None and digests.hex != expected:
                    raise ModelMismatch(
                        f"the bytes have digest sha256:{digests.hex}, not sha256:{expected}"
                    )
                return await self._checked(upload)
            finally:
                # Not in a thread: a wait here could be cancelled, and the file would stay.
                upload.discard()

    async def _checked(self, upload: Upload) -> ModelFile:
        """Loading is the check; and whoever sends a model means to use it next."""
        engine, digests = self._engine, upload.digests
        known = engine.files.find(digests.hex)
        if known is not None:
            try:
                await engine.memory.get(known, engine.limits.deadline)
                return known
            except (OSError, ModelMismatch) as error:
                LOG.error("model file %s cannot be used: %s", known.path, error)
                engine.lose(known)
        candidate = ModelFile(digests.hex, digests.md5, digests.size, upload.path, ACCOUNT)
        try:
            await engine.memory.get(candidate, engine.limits.deadline)
        except OSError as error:
            # Another upload of the same file was being loaded and was given up.
            raise EngineBusy(
                f"the model could not be read back: {error}", retry_after=_SOON
            ) from error
        return engine.files.cached.add(upload)
