"""``hapi export MODEL --weights W --freeze-at CUT -o FILE``: write an extractor file.

Prints ``sha256:<hex>`` of the file, the name by which ``X-Hapi-Model`` asks for it. Same model,
weights, freeze point and input size give the same bytes.
"""

from __future__ import annotations

import argparse
import os

from hapi_compute.cli import exit_codes, options

HELP = "write a model's frozen part as an extractor file"


def _input_size(text: str) -> tuple[int, int]:
    sides = text.lower().split("x")
    if len(sides) not in (1, 2) or not all(s.isascii() and s.isdigit() for s in sides):
        raise argparse.ArgumentTypeError(f"{text!r}: want N or HxW")
    height, width = int(sides[0]), int(sides[-1])
    if not (1 <= height <= 4096 and 1 <= width <= 4096):
        raise argparse.ArgumentTypeError(f"{text!r}: want sides from 1 to 4096")
    return height, width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="torchvision name, or timm/NAME")
    parser.add_argument(
        "--weights",
        required=True,
        metavar="W",
        help="random:SEED, default, a torchvision name (IMAGENET1K_V1), package:NAME, or a "
        ".safetensors or .pth file",
    )
    parser.add_argument(
        "--freeze-at",
        required=True,
        metavar="CUT",
        help="last cut of the frozen part: its name, its index, or a module (layer4)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write")
    parser.add_argument(
        "--classes",
        type=int,
        metavar="N",
        help="width of the classifier in a weights file (default: the architecture's own)",
    )
    parser.add_argument(
        "--input-size",
        type=_input_size,
        metavar="N|HxW",
        help="pixels of the input that shapes are given for (default: the model's own)",
    )
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from hapi_compute.models import load_model
    from swift_hapi.graph.extractor import save_extractor
    from swift_hapi.graph.split import make_extractor
    from swift_hapi.protocol.errors import BadCut

    model = load_model(args.model, args.weights, args.classes)
    shape = (3, *args.input_size) if args.input_size else model.input_shape
    try:
        extractor = make_extractor(model.module, args.freeze_at, shape)
    except BadCut as error:
        raise ValueError(f"--freeze-at: {error}") from error
    digest = save_extractor(extractor, args.output)
    if args.json != "-":
        print(digest)
    options.write_json(
        args.json,
        {
            "digest": digest,
            "file": os.path.abspath(args.output),
            "bytes": os.path.getsize(args.output),
            "model": model.name,
            "weights": model.weights,
            "freeze_at": extractor.cuts[-1].name,
            "input_shape": list(extractor.input_shape),
            "transform": model.transform,
            "cuts": [
                {
                    "index": cut.index,
                    "name": cut.name,
                    "shape": list(cut.shape),
                    "bytes": cut.bytes,
                    "pareto": cut.pareto,
                }
                for cut in extractor.cuts
            ],
        },
    )
    return exit_codes.OK
