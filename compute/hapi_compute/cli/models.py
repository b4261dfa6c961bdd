"""``hapi models [PATTERN]``: the models that can be asked for by name.

``PATTERN`` is a shell pattern (``resnet*``, ``timm/*vit*``), a name, or a part of names (``vit``).
Without one, timm's models are only counted. Your own model is ``path/to/file.py:FACTORY``.

``hapi models ls`` and ``hapi models rm MODEL...`` are about the extractor files in the account.
"""

from __future__ import annotations

import argparse
import sys

from hapi_compute.cli import exit_codes, options, stored_models

HELP = "list models by name, with the weights there are for them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "hapi models [PATTERN]\n       hapi models ls [-l]\n       hapi models rm MODEL... | --all"
    )
    parser.add_argument(
        "words", nargs="*", metavar="PATTERN | ls | rm MODEL...",
        help="models by name or shell pattern, e.g. 'timm/*vit*'; ls: extractor files in the "
        "account; rm: remove some of these (sha256:HEX, the beginning of HEX, or a name)",
    )  # fmt: skip
    options.add_json(parser)
    stored_models.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    action, more = (args.words[0], args.words[1:]) if args.words else (None, [])
    if action == "rm":
        return stored_models.rm(args, more)
    if more:
        raise ValueError(f"models: {more[0]!r} is one word too many")
    return stored_models.ls(args) if action == "ls" else _by_name(args, action)


def _by_name(args: argparse.Namespace, pattern: str | None) -> int:
    from hapi_compute.models.architectures import near_names
    from hapi_compute.models.listing import ListedModel, list_models

    found = list_models(pattern or "*")
    shown: list[ListedModel] = found
    if pattern is None:
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
        near = near_names(pattern)
        hint = f"; near: {', '.join(near)}" if near else ""
        print(f"hapi models: nothing matches {pattern!r}{hint}", file=sys.stderr)
        return exit_codes.FAILED
    return exit_codes.OK
