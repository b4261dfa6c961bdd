"""``hapi models [PATTERN]``: the models that can be asked for by name.

``PATTERN`` is a shell pattern (``resnet*``, ``timm/*vit*``), a name, or a part of names (``vit``).
Without one, timm's models are only counted. Your own model is ``path/to/file.py:FACTORY``.
"""

from __future__ import annotations

import argparse
import sys

from hapi_compute.cli import exit_codes, model_options, options

HELP = "list models by name, with the weights there are for them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pattern", nargs="?", metavar="PATTERN", help="name or shell pattern, e.g. 'timm/*vit*'"
    )
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    model_options.check_target(args.json, "--json")
    from hapi_compute.models.architectures import near_names
    from hapi_compute.models.listing import ListedModel, list_models

    found = list_models(args.pattern or "*")
    shown: list[ListedModel] = found
    if args.pattern is None:
        shown = [model for model in found if model.library != "timm"]
    out = sys.stderr if args.json == "-" else sys.stdout
    width = max((len(model.name) for model in shown), default=0)
    for model in shown:
        print(f"{model.name:<{width}}  {' '.join(model.weights)}".rstrip(), file=out)
    hidden = len(found) - len(shown)
    if hidden:
        print(f"and {hidden} of timm: hapi models 'timm/*'", file=out)
    options.write_json(args.json, {"models": [model.to_dict() for model in found]})
    if not found:
        near = near_names(args.pattern)
        hint = f"; near: {', '.join(near)}" if near else ""
        print(f"hapi models: nothing matches {args.pattern!r}{hint}", file=sys.stderr)
        return exit_codes.FAILED
    return exit_codes.OK
