"""``hapi eval CONTAINER --run DIR``: accuracy of a trained model on a labelled container."""

from __future__ import annotations

import argparse
import sys
import time

from hapi_compute.cli import config_file, early, exit_codes, options
from hapi_compute.cli.messages import count
from hapi_compute.cli.predict import add_common

HELP = "measure a trained model on a labelled container"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Top-1, top-5, loss, and which classes are taken for which."
    add_common(parser)
    options.add_scan(parser)
    config_file.add_config(parser)
    options.add_json(parser)
    options.add_auth(parser)


def run(args: argparse.Namespace) -> int:
    early.check_product(args.product)
    early.check_split(args.split)
    scan = options.scan_config(args)
    client = options.client(args)
    from hapi_compute.infer.classify import ClassifyConfig, classifier
    from hapi_compute.infer.evaluate import evaluate

    started = time.perf_counter()
    config = ClassifyConfig(scan, args.product, args.split, args.allow_code)
    with options.Bar("shard") as bar, classifier(config, client, labelled=True) as made:
        bar.note(f"split {made.split}: {made.why}")
        found = evaluate(made, bar)
    fallen = f"\nread raw: {count(made.fallbacks, 'shard')}" if made.fallbacks else ""
    print(found.table() + fallen, file=sys.stderr if args.json == "-" else sys.stdout)
    options.write_json(
        args.json,
        {
            **found.to_dict(),
            "dataset": made.dataset.identity,
            "model": made.product.model,
            "split": made.split,
            "fallbacks": made.fallbacks,
            "bytes_received": client.counters.snapshot().bytes_received,
            "seconds": time.perf_counter() - started,
        },
    )
    return exit_codes.OK
