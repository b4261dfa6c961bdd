"""``hapi put SRC swift://container/prefix``: pack labelled images into shards and upload them.

``SRC`` is a directory with a folder for each class, a directory of WebDataset tars, a CSV or JSONL
table of files and labels, a dataset of torchvision, or a container with an image in each object.
"""

from __future__ import annotations

import argparse
import sys

from hapi_compute.cli import early, exit_codes, options

HELP = "pack labelled images into shards and upload them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SRC",
        help="directory with a folder for each class, or of WebDataset tars; .csv or .jsonl table "
        "of files (key or path, from the table's folder) and labels; "
        "torchvision:NAME:ROOT[:OPTION=VALUE...]; or swift://CONTAINER/PREFIX with an image in "
        "each object",
    )  # fmt: skip
    parser.add_argument("target", metavar="swift://CONTAINER/PREFIX")
    parser.add_argument(
        "--labels", metavar="TABLE",
        help="CSV or JSONL table of key and label for the files of a directory, or for objects",
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
    options.add_json(parser)
    options.add_auth(parser)


def run(args: argparse.Namespace) -> int:
    from hapi_compute.data.uploader import PutConfig, upload
    from hapi_compute.store.names import SwiftUrl

    config = PutConfig(
        source=args.source,
        target=SwiftUrl.parse(args.target),
        shard_samples=args.shard_samples,
        shard_bytes=args.shard_bytes,
        seed=args.seed,
        jobs=args.jobs,
        skip_bad=args.skip_bad,
        labels=args.labels,
        download=args.download,
    )
    early.check_labels(args.labels)
    client = options.client(args)
    origin = client if args.source_storage_url is None else client.of_account(
        args.source_storage_url
    )  # fmt: skip
    with options.Bar("shard") as bar:
        report = upload(config, client, bar, origin)
    for name in report.empty_classes:
        print(f"class {name!r} has no images", file=sys.stderr)
    for place in report.skipped:
        print(f"skipped {place}", file=sys.stderr)
    if report.stale:
        print(
            f"{report.stale} other objects lie below {config.target}; they are not part of the "
            "dataset",
            file=sys.stderr,
        )
    print(
        f"{config.target}: {report.samples} samples, {len(report.classes)} classes, "
        f"{report.shards} shards ({report.bytes / 1e6:.1f} MB); uploaded {report.uploaded} shards "
        f"({report.bytes_uploaded / 1e6:.1f} MB)"
    )
    options.write_json(args.json, report.to_dict())
    return exit_codes.OK
