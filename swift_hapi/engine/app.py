"""The engine's HTTP routes, and how errors become problem documents."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from swift_hapi.engine import metrics
from swift_hapi.engine.engine import Engine
from swift_hapi.engine.features import FeaturesEndpoint
from swift_hapi.engine.guard import ClientGone
from swift_hapi.engine.model_api import ModelEndpoints
from swift_hapi.engine.responses import problem, trans_id
from swift_hapi.protocol.errors import EngineUnavailable, HapiError

LOG = logging.getLogger(__name__)
#: Seconds that a new engine takes to be ready.
_RESTART = 5
#: As nginx logs it; nobody is there to see it.
CLIENT_GONE = 499


class NoSuchRoute(HapiError):
    """The engine has no such path, or not with this method."""

    name = "no-such-route"
    status = 404


_ROUTES = ("/v1/features", "/v1/models", "/v1/status", "/livez", "/readyz", "/metrics")


def _route(path: str) -> str:
    """A label of few values: paths are the client's choice."""
    if path.startswith("/v1/models/"):
        return "/v1/models/{reference}"
    return path if path in _ROUTES else "other"


class Outermost:
    """ASGI middleware around everything: counts answers, and has one for the requests that the
    server cancels at the end of ``drain_timeout``."""

    def __init__(self, app: ASGIApp, engine: Engine):
        self._app = app
        self._requests = engine.metrics.requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def counted(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._requests.labels(_route(scope["path"]), str(message["status"])).inc()
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except asyncio.CancelledError:
            if started:
                raise
            error = EngineUnavailable("the engine is shutting down", retry_after=_RESTART)
            await problem(Request(scope), error)(scope, receive, counted)


def make_app(
    engine: Engine, give_up: Callable[[], None], warm_first: bool = False
) -> ASGIApp:
    """
    :param give_up: called when the warm-up fails: an engine that cannot work must end
    :param warm_first: take no connection before the warm-up is over, because another worker may
        take it
    """
    models = ModelEndpoints(engine)
    warming: set[asyncio.Task] = set()

    async def livez(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        if not engine.ready:
            return problem(request, EngineUnavailable("warming up", retry_after=1))
        return PlainTextResponse("ok\n")

    async def show_metrics(request: Request) -> Response:
        return Response(engine.metrics.exposition(), media_type=metrics.CONTENT_TYPE)

    async def status(request: Request) -> Response:
        return JSONResponse(engine.status())

    async def on_hapi_error(request: Request, error: HapiError) -> Response:
        engine.metrics.refused.labels(error.name).inc()
        LOG.info("%s %s %s: %s", trans_id(request), error.status, error.name, error.detail)
        return problem(request, error)

    async def on_client_gone(request: Request, error: ClientGone) -> Response:
        engine.metrics.gone.inc()
        LOG.info("%s: the client left", trans_id(request))
        return Response(status_code=CLIENT_GONE, headers={"Connection": "close"})

    async def on_http_error(request: Request, error: HTTPException) -> Response:
        wrong = NoSuchRoute(f"{request.method} {request.url.path}: {error.detail}")
        wrong.status = error.status_code
        return problem(request, wrong)

    async def on_bug(request: Request, error: Exception) -> Response:
        # Starlette raises it again after this, and uvicorn logs it with its traceback.
        LOG.error("%s: unexpected error", trans_id(request))
        return problem(request, HapiError("unexpected error; the engine's log tells more"))

    async def warm_up() -> None:
        try:
            await engine.warm_up()
        except Exception:
            LOG.critical("the engine cannot work", exc_info=True)
            give_up()
            raise

    def rescan() -> None:
        LOG.info("SIGHUP: reading the model directory anew")
        in_background(engine.rescan())

    def in_background(work) -> None:
        task = asyncio.ensure_future(work)
        warming.add(task)
        task.add_done_callback(warming.discard)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, rescan)
        if warm_first:
            await warm_up()
        else:
            in_background(warm_up())
        yield
        await engine.calibrator.close()
        engine.workers.shutdown()

    app = Starlette(
        routes=[
            Route("/v1/features", FeaturesEndpoint(engine), methods=["POST", "HEAD"]),
            Route("/v1/models", models.post, methods=["POST"]),
            Route("/v1/models/{reference}", models.head, methods=["HEAD"]),
            Route("/v1/models/{reference}", models.put, methods=["PUT"]),
            Route("/v1/status", status),
            Route("/livez", livez),
            Route("/readyz", readyz),
            Route("/metrics", show_metrics),
        ],
        exception_handlers={
            HapiError: on_hapi_error,
            ClientGone: on_client_gone,
            HTTPException: on_http_error,
            Exception: on_bug,
        },
        lifespan=lifespan,
    )
    return Outermost(app, engine)
