"""``hapi cluster``: an embedded single-machine Swift that lives until it is told to end."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from hapi_compute.cli import exit_codes, options

if TYPE_CHECKING:
    from swift_hapi.cluster import ClusterConfig, ClusterInfo

HELP = "run an embedded single-machine Swift"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    up = actions.add_parser(
        "up",
        help="start one and return when it is ready",
        description="Start a cluster in a directory of its own; it runs on until 'down'. "
        "Prints how to use it as lines for the shell.",
    )
    _common(up)
    up.add_argument(
        "--json", metavar="FILE", help="write how to use it here ('-': to stdout)"
    )
    up.add_argument("--replicas", type=int, default=1, metavar="N", help="copies of each object")
    up.add_argument(
        "--devices", type=int, metavar="N", help="object servers (default: as many as replicas)"
    )
    for section, what in (("filter", "our proxy filter"), ("engine", "the engine")):
        up.add_argument(
            f"--{section}-conf",
            type=_pair,
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help=f"option of {what}; may be given again",
        )
    up.add_argument("--no-hapi", action="store_true", help="a plain Swift: no filter, no engine")
    up.add_argument(
        "--engine-threads", type=int, default=1, metavar="N", help="CPUs the engine may use"
    )
    up.add_argument(
        "--proxy-host", default="127.0.0.1", metavar="IP", help="address the proxy listens on"
    )
    up.add_argument("--encryption", action="store_true", help="store objects encrypted")
    up.add_argument(
        "--workers", type=int, default=0, metavar="N", help="worker processes of the proxy"
    )
    up.add_argument("--listing-limit", type=int, metavar="N", help="most names in one listing")
    up.add_argument(
        "--data-dir", type=Path, metavar="D", help="where objects go (default: memory, else DIR)"
    )

    down = actions.add_parser("down", help="end one; its objects are lost, its logs stay")
    _common(down)
    status = actions.add_parser("status", help="say what runs; exits 1 when nothing does")
    _common(status)
    status.add_argument("--json", metavar="FILE", help="write it here too ('-': to stdout)")


def run(args: argparse.Namespace) -> int:
    return {"up": _up, "down": _down, "status": _status}[args.action](args)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, required=True, metavar="D", help="its directory")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def _config(args: argparse.Namespace) -> ClusterConfig:
    from swift_hapi.cluster import ClusterConfig

    return ClusterConfig(
        dir=args.dir,
        replicas=args.replicas,
        object_devices=args.replicas if args.devices is None else args.devices,
        hapi=not args.no_hapi,
        filter_conf=tuple(args.filter_conf),
        engine_conf=tuple(args.engine_conf),
        engine_threads=args.engine_threads,
        proxy_host=args.proxy_host,
        workers=args.workers,
        listing_limit=args.listing_limit,
        encryption=args.encryption,
        data_dir=args.data_dir,
    )


def _up(args: argparse.Namespace) -> int:
    from swift_hapi.cluster import EmbeddedCluster, find_or_wait

    config = _config(args)
    info = find_or_wait(config.dir, config.start_timeout)
    if info is not None:
        print(f"a cluster runs in {config.dir} already, as it was started", file=sys.stderr)
    else:
        cluster = EmbeddedCluster(config).start()
        info = cluster.info
        cluster.detach()
        print(f"a cluster runs in {config.dir}", file=sys.stderr)
    options.write_json(args.json, info.as_dict(), private=True)  # It holds a token.
    _print_exports(info, sys.stderr if args.json == "-" else sys.stdout)
    return exit_codes.OK


def _down(args: argparse.Namespace) -> int:
    from swift_hapi.cluster import shut_down

    running = shut_down(args.dir)
    said = "has ended" if running else "was not running"
    print(f"the cluster in {args.dir} {said}", file=sys.stderr)
    return exit_codes.OK


def _status(args: argparse.Namespace) -> int:
    from swift_hapi.cluster import find, running_state

    state = running_state(args.dir)
    if state is None:
        print(f"no cluster runs in {args.dir}", file=sys.stderr)
        options.write_json(args.json, {"running": False})
        return exit_codes.FAILED
    out = sys.stderr if args.json == "-" else sys.stdout
    print(f"{'server':<12} {'pid':>8} {'restarts':>8}  last exit", file=out)
    print(f"{'supervisor':<12} {state.supervisor.pid:>8} {0:>8}  -", file=out)
    for name, server in state.servers.items():
        pid = "-" if server.process is None else server.process.pid
        last = "-" if server.exit_code is None else server.exit_code
        print(f"{name:<12} {pid:>8} {server.restarts:>8}  {last}", file=out)
    info = find(args.dir)
    report = {
        "running": True,
        "ready": state.ready,
        "servers": {
            name: {
                "pid": None if server.process is None else server.process.pid,
                "restarts": server.restarts,
                "exit_code": server.exit_code,
            }
            for name, server in state.servers.items()
        },
    }
    whole = report | ({} if info is None else info.as_dict())
    options.write_json(args.json, whole, private=True)
    return exit_codes.OK


def _print_exports(info: ClusterInfo, stream: TextIO) -> None:
    for name, value in (("ST_AUTH", info.auth_url), ("ST_USER", info.user), ("ST_KEY", info.key)):
        print(f"export {name}={shlex.quote(value)}", file=stream)
