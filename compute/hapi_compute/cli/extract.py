"""``hapi extract CONTAINER --model M --cut C --out FILE``: features of a whole dataset."""

from __future__ import annotations

import argparse
import sys

from hapi_compute.cli import config_file, early, exit_codes, options
from hapi_compute.cli.messages import count
from hapi_compute.cli.model_options import WEIGHTS_HELP

HELP = "write the features of a whole dataset to a file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Features of every sample at one place of a network, in listing order, with keys and "
        "labels. Killed and run again, it goes on where it was."
    )
    parser.add_argument("dataset", metavar="[swift://]CONTAINER[/PREFIX]")
    parser.add_argument("--model", required=True, metavar="M", help="of torchvision, or timm/NAME")
    parser.add_argument(
        "--weights", default="default", metavar="W", help=f"{WEIGHTS_HELP} (default)"
    )
    parser.add_argument(
        "--cut", required=True, metavar="CUT",
        help="where to take them: a cut's name or index, or a module (hapi cuts MODEL)",
    )  # fmt: skip
    parser.add_argument(
        "--out", required=True, metavar="FILE",
        help="FILE.npy, with keys and labels in FILE.json, or FILE.safetensors with all of it",
    )  # fmt: skip
    parser.add_argument(
        "--transform", help="as in X-Hapi-Transform, or 'none' (default: the model's own)"
    )
    parser.add_argument(
        "--restart", action="store_true", help="begin anew, whatever an earlier run has left"
    )
    options.add_scan(parser)
    config_file.add_config(parser)
    options.add_json(parser)
    options.add_auth(parser)


def run(args: argparse.Namespace) -> int:
    from hapi_compute.infer.config import check_out
    from hapi_compute.infer.features_file import check_free

    check_out(args.out)
    check_free(args.out)
    early.check_code("model", args.model)
    early.check_weights(args.weights)
    scan = options.scan_config(args)
    client = options.client(args)
    from hapi_compute.infer.extract import ExtractConfig, extract

    config = ExtractConfig(
        scan, args.model, args.cut, args.out, args.weights, args.transform, args.restart
    )
    with options.Bar("shard") as bar:
        try:
            report = extract(config, client, bar, bar.note)
        except KeyboardInterrupt:
            if bar.done:
                kept = f"{bar.done} of {count(bar.total, 'shard')} kept"
                bar.note(f"{kept}; the same command goes on there")
            raise
    fallen = f", {count(report.fallbacks, 'shard')} read raw" if report.fallbacks else ""
    print(
        f"{report.out}: {' x '.join(map(str, report.shape))}, {report.model} at {report.cut}, "
        f"{count(report.samples - report.resumed, 'sample')} now, {report.resumed} before{fallen}",
        file=sys.stderr if args.json == "-" else sys.stdout,
    )
    if report.unlabelled:
        print(f"without a label (-1): {count(report.unlabelled, 'sample')}", file=sys.stderr)
    options.write_json(args.json, report.to_dict())
    return exit_codes.OK
