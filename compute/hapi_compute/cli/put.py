"""``hapi put SRC swift://container/prefix``: pack labelled images into shards and upload them."""

from __future__ import annotations

import argparse
import sys

from hapi_compute.cli import exit_codes, options

HELP = "pack labelled images into shards and upload them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SRC", help="directory with a folder per class, or of WebDataset tars"
    )
    parser.add_argument("target", metavar="swift://CONTAINER/PREFIX")
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
    from pathlib import Path

    from tqdm import tqdm

    from hapi_compute.data.uploader import PutConfig, upload
    from hapi_compute.store.names import SwiftUrl

    config = PutConfig(
        source=Path(args.source),
        target=SwiftUrl.parse(args.target),
        shard_samples=args.shard_samples,
        shard_bytes=args.shard_bytes,
        seed=args.seed,
        jobs=args.jobs,
        skip_bad=args.skip_bad,
    )
    client = options.client(args)
    with tqdm(unit="shard", file=sys.stderr, disable=not sys.stderr.isatty()) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        report = upload(config, client, progress)
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
