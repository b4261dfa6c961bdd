"""A real engine on an embedded cluster under load: memory, throughput, fairness, failures.

    python -m benchmarks.load --json out.json [--quick] [--only mixed,bare,...]

Swift and the clients have one core, the engine has another one. Cases:

* ``mixed``: 64 requests at once over four networks, in memory that holds barely two of them at
  full micro-batches; features compared with those of an idle engine; throughput against single
  jobs of the same engine and mix;
* ``bare``: the engine over its socket against a bare loop on the same core, by turns;
* ``small``: single JPEGs from 32 clients, with and without common micro-batches;
* ``fairness``: an account with 100 requests queued and another one's single request;
* ``plain``: plain GETs in an open loop, with and without feature requests, by turns;
* ``aborted``: descriptors after requests whose clients left;
* ``kills``: kill -9 of the engine during load.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import table, write_json
from benchmarks.load.bare import engine_vs_bare
from benchmarks.load.fairness import fairness
from benchmarks.load.kills import kills
from benchmarks.load.mixed import Size, mixed
from benchmarks.load.plain import aborted, plain
from benchmarks.load.setting import Setting, make_networks, setting
from benchmarks.load.small import small

BARE = "resnet18"


def cases(place: Setting, quick: bool, bare: str):
    """(name, what measures it) in order."""
    yield "mixed", lambda: mixed(place, Size(4, 1) if quick else Size(16, 3))
    yield "bare", lambda: engine_vs_bare(place, bare, *((2, 2) if quick else (12, 3)))
    if quick:
        yield "small", lambda: small(place, ("mobilenet_v3_large",), 64, 1)
        yield "fairness", lambda: fairness(place, BARE, 16, 1)
        yield "plain", lambda: plain(place, BARE, 1, 4.0)
        yield "aborted", lambda: aborted(place, BARE, 100)
        yield "kills", lambda: kills(place, "mobilenet_v3_large", 2)
        return
    yield "small", lambda: small(place, ("mobilenet_v3_large", BARE), 256, 2)
    yield "fairness", lambda: fairness(place, BARE, 64, 3)
    yield "plain", lambda: plain(place, BARE, 5, 12.0)
    yield "aborted", lambda: aborted(place, BARE, 500)
    yield "kills", lambda: kills(place, "mobilenet_v3_large", 20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="PATH", help="write the results there")
    parser.add_argument("--quick", action="store_true", help="under three minutes")
    parser.add_argument("--only", metavar="CASES", help="some of the cases, with commas")
    parser.add_argument("--bare", default=BARE, metavar="NETWORK", help="of that case (resnet18)")
    args = parser.parse_args()
    wanted = set(args.only.split(",")) if args.only else None
    rows: list[dict] = []
    summary: dict = {}
    with tempfile.TemporaryDirectory(prefix="hapi-load-") as name:
        directory = Path(name)
        networks = make_networks(directory)
        with setting(directory, networks) as place:
            for case, measure in cases(place, args.quick, args.bare):
                if wanted is not None and case not in wanted:
                    continue
                began = time.monotonic()
                found, figures = measure()
                rows += found
                summary |= figures
                print(f"-- {case}, {time.monotonic() - began:.0f} s", flush=True)
                print(table(found))
                for key, value in figures.items():
                    print(f"{key}: {value:.3f}" if isinstance(value, float) else f"{key}: {value}")
    write_json(args.json, "load", rows, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
