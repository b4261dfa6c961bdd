"""The HTTP server on the engine's socket: uvicorn, told to leave alone what is ours."""

from __future__ import annotations

import logging
import signal

import uvicorn

from swift_hapi.engine.app import make_app
from swift_hapi.engine.config import EngineConfig
from swift_hapi.engine.connection import EngineProtocol
from swift_hapi.engine.engine import Engine
from swift_hapi.engine.unix_socket import BACKLOG, listening_socket

LOG = logging.getLogger(__name__)
_KEEP_ALIVE = 30


def serve(config: EngineConfig) -> int:
    """Run until SIGTERM or SIGINT: stop accepting, finish what is under way (for at most
    ``drain_timeout``), remove the socket.

    :returns: exit status
    """
    engine = Engine(config)
    failed = False

    def give_up() -> None:
        nonlocal failed
        failed = True
        server.should_exit = True

    server = uvicorn.Server(
        uvicorn.Config(
            make_app(engine, give_up),
            http=EngineProtocol,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, round(config.drain_timeout)),
        )
    )

    def stop(*_) -> None:
        server.should_exit = True

    # For the time before uvicorn listens to signals; and after it has shut down, when it raises
    # them again although the socket is still to be removed.
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with listening_socket(config.socket, config.socket_mode, config.socket_group) as listener:
        LOG.info("listening on %s", config.socket)
        server.run(sockets=[listener])
    return 1 if failed else 0
