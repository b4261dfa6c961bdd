"""``hapi predict CONTAINER --run DIR``: labels and scores for everything in a container."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from hapi_compute.cli import config_file, exit_codes, options

HELP = "label everything in a container with a trained model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "One line for each sample, in listing order: object, key, the most likely class, its "
        "score, and the classes that come next."
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
        help="cut up to which the store computes, raw, or auto: the fewest bytes (auto)",
    )  # fmt: skip
    parser.add_argument(
        "--allow-code", action="store_true",
        help="execute the Python files that model.json names (a model or task of your own)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    if not 1 <= args.top <= 1_000_000:
        raise ValueError(f"top={args.top}: want 1 to 1000000")
    if args.json == "-" and args.out is None:
        raise ValueError("json=-: the predictions go to stdout already; give --out")
    form = args.format or ("csv" if str(args.out).endswith(".csv") else "jsonl")
    scan = options.scan_config(args)
    client = options.client(args)
    from hapi_compute.infer.classify import ClassifyConfig, classifier
    from hapi_compute.infer.predict import lines

    started, samples = time.perf_counter(), -(form == "csv")
    config = ClassifyConfig(scan, args.product, args.split, args.allow_code)
    with options.Bar("shard") as bar, classifier(config, client, labelled=False) as made:
        bar.note(f"split {made.split}: {made.why}")
        with _output(args.out) as stream:
            for line in lines(made, form, args.top, bar):
                stream.write(line)
                samples += 1
    report = {
        "samples": samples,
        "shards": len(made.dataset.shards),
        "split": made.split,
        "fallbacks": made.fallbacks,
        "bytes_received": client.counters.snapshot().bytes_received,
        "seconds": time.perf_counter() - started,
    }
    fallen = f", {made.fallbacks} shards read raw" if made.fallbacks else ""
    print(f"{samples} samples of {report['shards']} shards{fallen}", file=sys.stderr)
    options.write_json(args.json, report)
    return exit_codes.OK


class _output:  # noqa: N801 - used as a function
    """stdout, or a file that appears whole or not at all."""

    def __init__(self, path: str | None):
        self._path = path
        self._temporary = None if path is None else Path(f"{path}.{os.getpid()}.tmp")

    def __enter__(self):
        if self._temporary is None:
            return sys.stdout
        self._stream = open(self._temporary, "w", encoding="utf-8", errors="surrogatepass")
        return self._stream

    def __exit__(self, kind, *_exc) -> None:
        if self._temporary is None:
            sys.stdout.flush()
            return
        self._stream.close()
        if kind is None:
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink()
