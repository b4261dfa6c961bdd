"""``hapi-engine --config FILE``: the storage-side process.

It runs in the foreground and logs to standard error, as a service manager wants it. SIGTERM
drains and ends it, SIGHUP reads the operator's model directory anew.

Exit status: 0 ended by a signal, 1 it could not work (the log says why), 2 bad usage or
configuration.
"""

from __future__ import annotations

import argparse
import logging
import sys

from swift_hapi.engine.config import EngineConfig, read_config
from swift_hapi.engine.fleet import run_fleet
from swift_hapi.engine.unix_socket import socket_lock
from swift_hapi.graph.allocator import keep_freed_memory

LOG = logging.getLogger("swift_hapi.engine")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def main(argv: list[str] | None = None) -> int:
    """Entry point of the console script."""
    parser = argparse.ArgumentParser(
        prog="hapi-engine", description="The storage-side process of swift-hapi."
    )
    parser.add_argument("--config", required=True, help="ini file with a section [engine]")
    # What one of several workers is started with, by its parent.
    parser.add_argument("--worker", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--listen", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    try:
        config = read_config(args.config)
    except (OSError, ValueError) as error:
        print(f"hapi-engine: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(level=config.log_level, format=_FORMAT, stream=sys.stderr)
    # uvicorn tells of every connection at INFO.
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.root.level))
    try:
        if args.listen is not None:
            return _serve(config, args.worker, args.listen)
        with socket_lock(config.socket):
            if config.workers > 1:
                return run_fleet(config, args.config)
            return _serve(config)
    except (OSError, KeyError, ValueError) as error:
        LOG.critical("cannot start: %s", error)
        return 1


def _serve(config: EngineConfig, worker: int = 0, descriptor: int | None = None) -> int:
    keep_freed_memory()
    # Late, because it imports torch, which takes seconds.
    from swift_hapi.engine.server import serve

    return serve(config, worker, descriptor)


if __name__ == "__main__":
    sys.exit(main())
