"""``POST`` and ``HEAD /v1/features``: an object's bytes in, features out."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from swift_hapi.engine.ask import parse_ask
from swift_hapi.engine.engine import Engine
from swift_hapi.engine.feature_call import FeatureCall
from swift_hapi.engine.guard import guarded
from swift_hapi.engine.responses import close_if_unread


class FeaturesEndpoint:
    """ASGI application of the route. Place and memory are held until the answer is sent."""

    def __init__(self, engine: Engine):
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        connection = request.state.connection
        ask = parse_ask(request.headers.get, self._engine.limits.deadline)
        async with AsyncExitStack() as held:
            work = FeatureCall(self._engine, request, ask).answer(held)
            response = await guarded(work, connection.gone, ask.deadline)
            close_if_unread(request, response)
            # A client that does not take its answer must not keep its place for ever. Cut off, it
            # sees fewer bytes than Content-Length says.
            patience = asyncio.get_running_loop().call_later(ask.deadline, connection.abort)
            try:
                await response(scope, receive, send)
            finally:
                patience.cancel()
