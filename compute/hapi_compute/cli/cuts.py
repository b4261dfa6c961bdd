"""``hapi cuts MODEL``: where a model can be cut, what would travel, and what is computed by then.

Bytes are those of one sample. Time is measured on this machine; FLOPs are counted (a multiply-add
is two; only matrix products and convolutions). A Pareto cut is smaller than every one before it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from hapi_compute.cli import exit_codes, model_options, options

HELP = "list where a model can be cut"
_COUNT = model_options.whole(1, 4096)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model_options.add_model(parser)
    model_options.add_weights(parser, default="random:0")
    parser.add_argument(
        "--freeze-at", metavar="CUT", help="only the part up to this cut or module"
    )
    model_options.add_input_size(parser)
    parser.add_argument("--pareto", action="store_true", help="list Pareto cuts only")
    parser.add_argument(
        "--batch", type=_COUNT, default=8, metavar="N", help="samples at a time when measuring (8)"
    )
    parser.add_argument(
        "--repeats",
        type=_COUNT,
        default=3,
        metavar="N",
        help="runs of which the fastest counts (3)",
    )
    parser.add_argument(
        "--threads", type=_COUNT, metavar="N", help="torch's CPU threads (default: torch's own)"
    )
    parser.add_argument("--plot", metavar="FILE", help="draw bytes over time (.png, .svg, .pdf)")
    parser.add_argument(
        "--jpeg-bytes",
        type=options.size,
        default=110_000,
        metavar="SIZE",
        help="of a sample as it is stored, for the plot (110 kB, a typical photo)",
    )
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    if args.plot:
        from hapi_compute.models.cut_plot import check_plot

        check_plot(args.plot)
        options.check_target(args.plot, "--plot")
    import torch

    from hapi_compute.models.cut_table import cut_rows

    if args.threads:
        torch.set_num_threads(args.threads)
    model, extractor = model_options.load(args)
    rows = cut_rows(extractor, args.batch, args.repeats)
    if args.plot:
        size = "x".join(map(str, extractor.input_shape))
        _plot(rows, f"{model.name}, {size}", args.jpeg_bytes, args.plot)
    out = sys.stderr if args.json == "-" else sys.stdout
    print(_table([row for row in rows if row.pareto or not args.pareto]), file=out)
    options.write_json(
        args.json,
        {
            "model": model.name,
            "weights": model.weights,
            "input_shape": list(extractor.input_shape),
            "input_dtype": model.input_dtype,
            "transform": model.transform,
            "fixed_input_shape": extractor.fixed,
            "threads": torch.get_num_threads(),
            "batch": args.batch,
            "cuts": [row.to_dict() for row in rows],
        },
    )
    return exit_codes.OK


def _plot(rows, title: str, jpeg_bytes: int, path: str) -> None:
    from hapi_compute.models.cut_plot import plot
    from hapi_compute.train.files import write_whole

    with tempfile.TemporaryDirectory(prefix="hapi-cuts-") as place:
        picture = Path(place, "plot").with_suffix(Path(path).suffix)
        plot(rows, title, jpeg_bytes, picture)
        write_whole(path, picture.read_bytes())


def _table(rows) -> str:
    wire = [d for d in ("int64", "float32", "float16", "int8", "uint8")
            if any(d in row.wire for row in rows)]  # fmt: skip
    lines = [["cut", "", "name", "shape", *wire, "time", "GFLOPs"]]
    for row in rows:
        lines.append(
            [
                str(row.index),
                "*" if row.pareto else "",
                row.name,
                "x".join(map(str, row.shape)),
                *(f"{row.wire[dtype]:,}" if dtype in row.wire else "" for dtype in wire),
                f"{100 * row.time_share:.1f} %",
                f"{row.flops / 1e9:.3f}",
            ]
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    left = {1, 2, 3}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ) + "\n* Pareto: smaller than every cut before it"
