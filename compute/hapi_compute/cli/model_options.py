"""Options that say which model is meant, and loading it as they say."""

from __future__ import annotations

import argparse
from collections.abc import Callable

MODEL_HELP = "torchvision name, timm/NAME, or path/to/file.py:FACTORY for one of your own"
WEIGHTS_HELP = (
    "random:SEED, default, a torchvision name (IMAGENET1K_V1), package:NAME, none, or a "
    ".safetensors or .pth file"
)


def _input_size(text: str) -> tuple[int, int]:
    sides = text.lower().split("x")
    if len(sides) not in (1, 2) or not all(s.isascii() and s.isdigit() for s in sides):
        raise argparse.ArgumentTypeError(f"{text!r}: want N or HxW")
    height, width = int(sides[0]), int(sides[-1])
    if not (1 <= height <= 4096 and 1 <= width <= 4096):
        raise argparse.ArgumentTypeError(f"{text!r}: want sides from 1 to 4096")
    return height, width


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number from ``low`` to ``high``, for ``type=`` of an argument."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"{text!r}: want {low} to {high}")
        return int(text)

    return read


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)


def add_weights(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """``--weights``, required when there is no ``default``, and ``--classes``."""
    shown = "" if default is None else f" ({default})"
    parser.add_argument(
        "--weights",
        required=default is None,
        default=default,
        metavar="W",
        help=WEIGHTS_HELP + shown,
    )
    parser.add_argument(
        "--classes",
        type=whole(1, 1_000_000),
        metavar="N",
        help="width of the classifier in a weights file (default: the architecture's own)",
    )


def add_input_size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input-size",
        type=_input_size,
        metavar="N|HxW",
        help="pixels of the input that shapes are given for (default: the model's own)",
    )


def load(args: argparse.Namespace):
    """(model, extractor of it up to ``--freeze-at``, or of all of it).

    :raises ValueError: an option does not suit the model
    :raises ModelInvalid: the model has no place in an extractor file
    """
    from hapi_compute.models import load_model
    from swift_hapi.graph.split import make_extractor
    from swift_hapi.protocol.errors import BadCut, ModelInvalid

    model = load_model(args.model, args.weights, args.classes)
    shape = model.input_shape
    if args.input_size:
        if len(shape) != 3:
            raise ValueError(f"--input-size: {model.name} takes no images")
        shape = (shape[0], *args.input_size)
    try:
        return model, make_extractor(model.module, args.freeze_at, shape, model.dtype)
    except BadCut as error:
        raise ValueError(f"--freeze-at: {error}") from error
    except ModelInvalid as error:
        if shape == model.input_shape or "does not run on input" not in error.detail:
            raise
        own = "x".join(map(str, model.input_shape[1:]))
        raise ValueError(f"--input-size (the model's own is {own}): {error}") from error
