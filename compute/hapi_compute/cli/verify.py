"""``hapi verify CONTAINER``: whether a dataset in the store is whole."""

from __future__ import annotations

import argparse
import sys

from hapi_compute.cli import early, exit_codes, options
from hapi_compute.cli.messages import classes, count, size

HELP = "look at every byte of a dataset and say what is wrong with it"
#: problems shown before only their number is told
_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Reads every object: its checksum, its samples, their labels, and whether all of it is "
        "what the manifest says. Exits 1 when anything is wrong; --json lists everything."
    )
    parser.add_argument("dataset", metavar="[swift://]CONTAINER[/PREFIX]")
    parser.add_argument(
        "--no-decode", action="store_true", help="do not decode images, which takes longest"
    )
    parser.add_argument(
        "--labels", metavar="WHERE", help="'path', or a table (see 'hapi extract --help')"
    )
    parser.add_argument(
        "--num-classes", type=int, metavar="N", help="where the dataset does not say"
    )
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="objects at once (4)")
    options.add_json(parser)
    options.add_auth(parser)


def run(args: argparse.Namespace) -> int:
    from hapi_compute.data.verify import verify
    from hapi_compute.store.names import SwiftUrl

    options.check_range("jobs", args.jobs, 1, 256)
    options.check_range("num_classes", args.num_classes, 1, 1_000_000)
    early.check_labels(args.labels)
    url = SwiftUrl.parse(options.swift_url(args.dataset))
    client = options.client(args)
    with options.Bar("object") as bar:
        report = verify(
            client, url, labels=args.labels, num_classes=args.num_classes,
            decode=not args.no_decode, jobs=args.jobs, progress=bar,
        )  # fmt: skip
    for problem in report.problems[:_SHOWN]:
        print(options.printable(problem), file=sys.stderr)
    if len(report.problems) > _SHOWN:
        print(f"and {len(report.problems) - _SHOWN} more", file=sys.stderr)
    said = "is whole" if report.good else f"has {count(len(report.problems), 'problem')}"
    digest = f", {report.digest}" if report.digest else ", no manifest"
    print(
        f"{url} {said}: {count(report.samples, 'sample')}, {classes(len(report.classes))}, "
        f"{count(report.objects, 'object')}, {size(report.bytes)}{digest}",
        file=sys.stderr if args.json == "-" else sys.stdout,
    )
    options.write_json(args.json, report.to_dict())
    return exit_codes.OK if report.good else exit_codes.FAILED
