"""``hapi put SRC swift://container/prefix``: pack labelled images into shards and upload them.

``SRC`` is a directory with a folder for each class, a directory of WebDataset tars, a CSV or JSONL
table of files and labels, a dataset of torchvision, or a container with an image in each object.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import PurePath

from hapi_compute.cli import early, exit_codes, options
from hapi_compute.cli.messages import classes, count, size

HELP = "pack images into shards and upload them"
#: class names, and kinds of files left out, that are told
_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SRC",
        help="directory with a folder for each class, or of WebDataset tars; .csv or .jsonl table "
        "of files (key or path, from the table's folder) and labels; "
        "torchvision:NAME:ROOT[:OPTION=VALUE...]; or swift://CONTAINER/PREFIX with an image in "
        "each object",
    )  # fmt: skip
    parser.add_argument("target", metavar="[swift://]CONTAINER/PREFIX")
    parser.add_argument(
        "--labels", metavar="TABLE",
        help="CSV or JSONL table of key and label for the files of a directory, or for objects",
    )  # fmt: skip
    parser.add_argument(
        "--unlabelled", action="store_true",
        help="pack all images of a directory, flat or not, of tars or of a container without "
        "labels, for hapi predict and extract",
    )  # fmt: skip
    parser.add_argument(
        "--download", action="store_true", help="let torchvision fetch a dataset that is not there"
    )
    parser.add_argument(
        "--source-storage-url", metavar="URL",
        help="account that a SRC in the store lies in (default: that of the target)",
    )  # fmt: skip
    parser.add_argument(
        "--shard-samples", type=int, metavar="N",
        help="most samples in a shard (128, and fewer for a small dataset)",
    )
    parser.add_argument(
        "--shard-bytes",
        type=options.size,
        default=16_000_000,
        metavar="SIZE",
        help="most bytes of a shard (16MB)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the packing order (0)")
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="uploads at once (4)")
    parser.add_argument(
        "--skip-bad", action="store_true", help="leave out files that are no readable images"
    )
    parser.add_argument(
        "--prune", action="store_true",
        help="afterwards remove shards that earlier puts have left below PREFIX, and nothing else",
    )  # fmt: skip
    options.add_json(parser)
    options.add_auth(parser)


def run(args: argparse.Namespace) -> int:
    from hapi_compute.data.uploader import PutConfig, upload
    from hapi_compute.store.names import SwiftUrl

    config = PutConfig(
        source=args.source,
        target=SwiftUrl.parse(options.swift_url(args.target)),
        shard_samples=args.shard_samples,
        shard_bytes=args.shard_bytes,
        seed=args.seed,
        jobs=args.jobs,
        skip_bad=args.skip_bad,
        labels=args.labels,
        download=args.download,
        unlabelled=args.unlabelled,
        prune=args.prune,
    )
    early.check_labels(args.labels)
    client = options.client(args)
    origin = client if args.source_storage_url is None else client.of_account(
        args.source_storage_url
    )  # fmt: skip
    with options.Bar("shard") as bar:
        report = upload(config, client, bar, origin)
    out = sys.stderr if args.json == "-" else sys.stdout
    for line in _remarks(report, config.target):
        print(options.printable(line), file=sys.stderr)
    print(
        f"{config.target}: {count(report.samples, 'sample')}, {classes(len(report.classes))}, "
        f"{count(report.shards, 'shard')} ({size(report.bytes)}); uploaded "
        f"{count(report.uploaded, 'shard')} ({size(report.bytes_uploaded)})",
        file=out,
    )
    if report.classes:
        print(f"classes: {options.printable(_some(report.classes))}", file=out)
    options.write_json(args.json, report.to_dict())
    return exit_codes.OK


def _remarks(report, target):
    """What somebody may want to know, a line each."""
    for note in report.notes:
        yield f"note: {note}"
    for name in report.empty_classes:
        yield f"class {name!r} has no images"
    for place in report.skipped:
        yield f"skipped {place}"
    if report.ignored:
        kinds = Counter(PurePath(name).suffix.lower() or "none" for name in report.ignored)
        told = _some([f"{kind} {number}" for kind, number in kinds.most_common()])
        files = "1 file is" if len(report.ignored) == 1 else f"{len(report.ignored)} files are"
        yield f"{files} called like no image: left out ({told})"
    if report.pruned:
        yield f"removed {count(report.pruned, 'object')} that earlier puts had left below {target}"
    if report.stale:
        shards = "is a shard" if report.left == 1 else "are shards"
        left = f" ({report.left} {shards} of earlier puts: --prune removes them)"
        lie = "lies" if report.stale == 1 else "lie"
        yield (
            f"{count(report.stale, 'other object')} {lie} below {target}, no part of the dataset"
            f"{left if report.left else ''}"
        )


def _some(texts) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more
