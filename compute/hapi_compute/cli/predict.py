"""``hapi predict CONTAINER --run DIR``: labels and scores for everything in a container."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import contextmanager

from hapi_compute.cli import config_file, early, exit_codes, options
from hapi_compute.cli.messages import count

HELP = "label everything in a container with a trained model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "One line for each sample, in listing order: object, key, name of the file that was "
        "packed, the most likely class, its score, and the classes that come next."
    )
    add_common(parser)
    parser.add_argument("--top", type=int, default=5, metavar="K", help="classes on a line (5)")
    parser.add_argument(
        "--format", choices=("jsonl", "csv"), help="(default: as --out is called, else jsonl)"
    )
    parser.add_argument("-o", "--out", metavar="FILE", help="file to write (default: stdout)")
    options.add_scan(parser)
    config_file.add_config(parser)
    options.add_json(parser)
    options.add_auth(parser)


def add_common(parser: argparse.ArgumentParser) -> None:
    """What ``hapi eval`` takes too."""
    parser.add_argument("dataset", metavar="[swift://]CONTAINER[/PREFIX]")
    parser.add_argument(
        "--run", required=True, metavar="DIR", dest="product",
        help="what 'hapi train --out DIR' wrote: model.safetensors and model.json",
    )  # fmt: skip
    parser.add_argument(
        "--split", default="auto", metavar="CUT",
        help="cut or module up to which the store computes, raw, or auto: fewest bytes (auto)",
    )  # fmt: skip
    parser.add_argument(
        "--allow-code", action="store_true",
        help="execute the Python files that model.json names (a model or task of your own)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    if not 1 <= args.top <= 1_000_000:
        raise ValueError(f"top={args.top}: want 1 to 1000000")
    if args.json == "-" and args.out in (None, "-"):
        raise ValueError("json=-: the predictions go to stdout already; give --out")
    form = args.format or ("csv" if str(args.out).endswith(".csv") else "jsonl")
    options.check_target(args.out, "--out")
    early.check_product(args.product)
    early.check_split(args.split)
    scan = options.scan_config(args)
    client = options.client(args)
    from hapi_compute.data.names import read_names
    from hapi_compute.infer.classify import ClassifyConfig, classifier
    from hapi_compute.infer.predict import lines

    started, samples = time.perf_counter(), -(form == "csv")
    config = ClassifyConfig(scan, args.product, args.split, args.allow_code)
    with options.Bar("shard") as bar, classifier(config, client, labelled=False) as made:
        bar.note(f"split {made.split}: {made.why}")
        name_of = read_names(client, made.dataset)
        with _output(args.out) as write:
            for line in lines(made, form, args.top, bar, name_of):
                write(line)
                samples += 1
    report = {
        "samples": samples,
        "shards": len(made.dataset.shards),
        "split": made.split,
        "fallbacks": made.fallbacks,
        "bytes_received": client.counters.snapshot().bytes_received,
        "seconds": time.perf_counter() - started,
    }
    fallen = f", {count(made.fallbacks, 'shard')} read raw" if made.fallbacks else ""
    read = f"{count(samples, 'sample')} of {count(report['shards'], 'shard')}"
    print(f"{read}{fallen}", file=sys.stderr)
    options.write_json(args.json, report)
    return exit_codes.OK


@contextmanager
def _output(path: str | None):
    """A function that writes a line to stdout, or to a file that appears whole or not at all."""
    if path is None or path == "-":
        yield sys.stdout.write
        sys.stdout.flush()
        return
    from hapi_compute.train.files import open_whole

    with open_whole(path) as stream:
        yield lambda line: stream.write(line.encode("utf-8", "surrogatepass"))
