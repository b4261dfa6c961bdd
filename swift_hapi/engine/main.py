"""``hapi-engine --config FILE``: the storage-side process.

It runs in the foreground and logs to standard error, as a service manager wants it. SIGTERM
drains and ends it, SIGHUP reads the operator's model directory anew.

Exit status: 0 ended by a signal, 1 it could not work (the log says why), 2 bad usage or
configuration.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import sys

from swift_hapi.engine.config import read_config
from swift_hapi.engine.unix_socket import socket_lock

LOG = logging.getLogger("swift_hapi.engine")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# mallopt(3)
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8


def _keep_freed_memory() -> None:
    """Have glibc keep large blocks instead of returning them to the kernel each time.

    Activations come and go with every layer; taking and clearing fresh pages for each of them
    costs a third of the time of thin networks. One arena for all threads, because only the main
    one can grow to the size of an activation. Elsewhere than on glibc nothing is done.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, -1)


def main(argv: list[str] | None = None) -> int:
    """Entry point of the console script."""
    parser = argparse.ArgumentParser(
        prog="hapi-engine", description="The storage-side process of swift-hapi."
    )
    parser.add_argument("--config", required=True, help="ini file with a section [engine]")
    args = parser.parse_args(argv)
    try:
        config = read_config(args.config)
    except (OSError, ValueError) as error:
        print(f"hapi-engine: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(level=config.log_level, format=_FORMAT, stream=sys.stderr)
    # uvicorn tells of every connection at INFO.
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.root.level))
    _keep_freed_memory()

    try:
        with socket_lock(config.socket):
            # Late, because it imports torch, which takes seconds.
            from swift_hapi.engine.server import serve

            return serve(config)
    except (OSError, KeyError) as error:
        LOG.critical("cannot start: %s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
