"""The HTTP server on the engine's socket: uvicorn, told to leave alone what is ours."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import signal
import socket

import uvicorn

from swift_hapi.engine.app import make_app
from swift_hapi.engine.config import EngineConfig
from swift_hapi.engine.connection import EngineProtocol
from swift_hapi.engine.engine import Engine
from swift_hapi.engine.fleet import adopted
from swift_hapi.engine.placement import settle
from swift_hapi.engine.unix_socket import BACKLOG, listening_socket

LOG = logging.getLogger(__name__)
_KEEP_ALIVE = 30
_PR_SET_PDEATHSIG = 1


def serve(config: EngineConfig, worker: int = 0, descriptor: int | None = None) -> int:
    """Run until SIGTERM or SIGINT: stop accepting, finish what is under way (for at most
    ``drain_timeout``), remove the socket.

    :param descriptor: of the socket that several workers share; None makes and removes it here
    :returns: exit status
    :raises ValueError: the device asked for is not there
    """
    config = settle(config, worker)
    engine = Engine(config, worker)
    failed = False

    def give_up() -> None:
        nonlocal failed
        failed = True
        server.should_exit = True

    server = uvicorn.Server(
        uvicorn.Config(
            make_app(engine, give_up, warm_first=descriptor is not None),
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
    with contextlib.ExitStack() as open_:
        server.run(sockets=_listeners(config, worker, descriptor, open_))
    return 1 if failed else 0


def _listeners(
    config: EngineConfig, worker: int, descriptor: int | None, open_: contextlib.ExitStack
) -> list[socket.socket]:
    """The engine's socket; a worker has one of its own besides, to be asked how *it* is."""
    path, mode, group = config.socket, config.socket_mode, config.socket_group
    if descriptor is None:
        LOG.info("listening on %s", path)
        return [open_.enter_context(listening_socket(path, mode, group))]
    _end_with_parent()
    own = path.with_name(f"{path.name}.{worker}")
    return [adopted(descriptor), open_.enter_context(listening_socket(own, mode, group))]


def _end_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
