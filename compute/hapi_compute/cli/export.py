"""``hapi export MODEL --weights W --freeze-at CUT -o FILE``: write an extractor file.

Prints ``sha256:<hex>`` of the file, the name by which ``X-Hapi-Model`` asks for it. Same model,
weights, freeze point and input size give the same bytes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from hapi_compute.cli import exit_codes, model_options, options

HELP = "write a model's frozen part as an extractor file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model_options.add_model(parser)
    model_options.add_weights(parser)
    parser.add_argument(
        "--freeze-at",
        required=True,
        metavar="CUT",
        help="last cut of the frozen part: its name, its index, or a module (layer4)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write")
    model_options.add_input_size(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    options.check_target(args.output, "--output")
    model, extractor = model_options.load(args)
    digest, size = _save(extractor, args.output)
    if args.json != "-":
        print(digest)
    options.write_json(
        args.json,
        {
            "digest": digest,
            "file": os.path.abspath(args.output),
            "bytes": size,
            "model": model.name,
            "weights": model.weights,
            "freeze_at": extractor.cuts[-1].name,
            "input_shape": list(extractor.input_shape),
            "input_dtype": model.input_dtype,
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


def _save(extractor, path: str) -> tuple[str, int]:
    """Digest and bytes of what is written."""
    from hapi_compute.train.files import regular, write_whole
    from swift_hapi.graph.extractor import save_extractor

    target = regular(path)
    if target is not None:
        return save_extractor(extractor, target), os.path.getsize(target)
    with tempfile.TemporaryDirectory(prefix="hapi-export-") as place:
        file = Path(place, "extractor")
        digest = save_extractor(extractor, file)
        write_whole(path, file.read_bytes())
        return digest, os.path.getsize(file)
