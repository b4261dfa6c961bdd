"""``hapi engine status``: what an engine on this machine does just now."""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import sys
import time
from pathlib import Path

from hapi_compute.cli import exit_codes, options

HELP = "look into an engine on this machine"
_TIMEOUT = 10.0
_MiB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    status = actions.add_parser(
        "status",
        help="its queue, memory and lanes; exits 1 when it does not answer",
        description="Queue, memory and lanes of an engine, of all its workers if it has several.",
    )
    where = status.add_mutually_exclusive_group(required=True)
    where.add_argument("--socket", type=Path, metavar="PATH", help="the engine's socket")
    where.add_argument("--dir", type=Path, metavar="D", help="directory of an embedded cluster")
    status.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="as JSON (default: to stdout)"
    )
    status.add_argument(
        "--watch", type=float, metavar="SECONDS", help="again and again, until interrupted"
    )


def run(args: argparse.Namespace) -> int:
    path = args.socket or args.dir / "run" / "engine.sock"
    while True:
        workers = _workers(path)
        if args.json is not None:
            options.write_json(args.json, {"workers": workers})
        else:
            text = "\n\n".join(_describe(status) for status in workers)
            print(f"\033[H\033[J{text}" if args.watch and sys.stdout.isatty() else text)
        if not args.watch:
            return exit_codes.OK
        time.sleep(args.watch)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path):
        super().__init__("engine", timeout=_TIMEOUT)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT)
        self.sock.connect(self._path)


def _ask(path: Path) -> dict:
    """:raises OSError: nobody answers, or not as an engine does"""
    connection = _Connection(path)
    try:
        connection.request("GET", "/v1/status")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise OSError(f"{path}: the engine answers {answer.status}")
        return json.loads(body)
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"{path}: no engine answers there ({error!r})") from None
    except OSError as error:
        raise OSError(f"{path}: {error.strerror or error}") from None
    finally:
        connection.close()


def _workers(path: Path) -> list[dict]:
    """The status of every process; several of them have a socket of their own each."""
    own = sorted(
        (other for other in path.parent.glob(f"{path.name}.*") if other.suffix[1:].isdigit()),
        key=lambda other: int(other.suffix[1:]),
    )
    return [_ask(each) for each in own or [path]]


def _describe(status: dict) -> str:
    queue, memory, models = status["queue"], status["memory"], status["models"]
    used = {key: memory[f"{key}_bytes"] / _MiB for key in ("used", "budget", "input", "output")}
    parts = {key: memory[f"{key}_bytes"] / _MiB for key in ("weight", "reserved")}
    counters = status["counters"]
    lines = [
        f"worker {status['worker']}, pid {status['pid']}, "
        f"{'ready' if status['ready'] else 'warming up'}, up {status['uptime']:.0f} s, "
        f"on {status['device']}, version {status['version']}",
        f"requests  {queue['in_flight']} of {queue['places']} admitted, {queue['waiting']} "
        f"waiting, about {queue['expected_seconds']:.1f} s of work",
        f"memory    {used['used']:.0f} of {used['budget']:.0f} MiB: objects {used['input']:.0f}, "
        f"responses {used['output']:.0f}, weights {parts['weight']:.0f}, "
        f"micro-batches {parts['reserved']:.0f}",
        f"models    {len(models['known'])} known, {len(models['loaded'])} loaded, "
        f"{models['evictions']} evictions",
        f"so far    {counters['samples']:.0f} samples, {counters['refused']:.0f} refusals, "
        f"{counters['clients_gone']:.0f} clients gone",
    ]
    if status["lanes"]:
        lines += ["", _LANE.format(*_TITLES)]
        lines += [_lane(lane) for lane in status["lanes"]]
    if status["accounts"]:
        lines += ["", _ACCOUNT.format("account", "requests", "samples", "CPU s", "MiB out")]
        lines += [
            _ACCOUNT.format(
                name[:32], use["requests"], use["samples"], f"{use['cpu_seconds']:.1f}",
                f"{use['bytes_out'] / _MiB:.1f}",
            )
            for name, use in status["accounts"].items()
        ]  # fmt: skip
    return "\n".join(lines)


_TITLES = ("lane", "shape", "batch", "running", "waiting", "accounts", "ms/sample", "MiB/sample")
_LANE = "{:<36} {:>12} {:>6} {:>8} {:>8} {:>8} {:>10} {:>10}"
_ACCOUNT = "{:<32} {:>9} {:>9} {:>9} {:>9}"


def _lane(lane: dict) -> str:
    return _LANE.format(
        f"{lane['model']} {lane['cut']}"[:36],
        "x".join(map(str, lane["shape"])),
        lane["target"],
        lane["running"],
        lane["waiting"],
        lane["accounts"],
        f"{lane['sample_seconds'] * 1000:.2f}",
        f"{lane['activation_bytes'] / _MiB:.2f}",
    )
