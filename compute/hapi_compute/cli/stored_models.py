"""``hapi models ls`` and ``hapi models rm``: extractor files in the account."""

from __future__ import annotations

import argparse
import json
import re
import sys

from hapi_compute.cli import exit_codes, messages, options
from swift_hapi.protocol.digest import model_hex
from swift_hapi.protocol.headers import DEFAULT_MODEL_CONTAINER

_SUFFIX = ".safetensors"
#: hex digits of a digest that are enough to name one
_SHORTEST = 8
#: bytes of a header that are read to describe a file
_MOST = 16 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("models ls, models rm")
    group.add_argument(
        "-l", "--long", action="store_true", help="look into each file: input and freeze point"
    )
    group.add_argument("--all", action="store_true", help="remove all of them")
    group.add_argument(
        "-n", "--dry-run", action="store_true", help="say what would be removed, remove nothing"
    )
    group.add_argument(
        "--container", default=DEFAULT_MODEL_CONTAINER, metavar="C",
        help=f"that they are in ({DEFAULT_MODEL_CONTAINER})",
    )  # fmt: skip
    options.add_auth(parser)


def ls(args: argparse.Namespace) -> int:
    """List them."""
    client = options.client(args)
    out = sys.stderr if args.json == "-" else sys.stdout
    rows = []
    for each in _files(client, args.container):
        row = {"model": _reference(each.name), "object": each.name, "bytes": each.bytes}
        if args.long:
            row |= _look_into(client, args.container, each)
        rows.append(row)
        more = ""
        if args.long:
            shape = "x".join(map(str, row["input"])) if row["input"] else "?"
            more = f"  {shape} to {row['freeze_at'] or '?'}"
        print(f"{messages.size(each.bytes):>9}  {options.printable(row['model'])}{more}", file=out)
    if not rows:
        print(f"no extractor files in {options.printable(args.container)}", file=sys.stderr)
    options.write_json(args.json, {"container": args.container, "models": rows})
    return exit_codes.OK


def rm(args: argparse.Namespace, wanted: list[str]) -> int:
    """Remove those that ``wanted`` names: ``sha256:<hex>``, the beginning of the hex digits, or a
    name.

    :raises ValueError: one of them names none, or several
    """
    if bool(wanted) == args.all:
        raise ValueError("models rm: name the models to remove, or say --all")
    client = options.client(args)
    files = list(_files(client, args.container))
    chosen = files if args.all else [_find(text, files) for text in wanted]
    if not chosen:
        print(f"no extractor files in {options.printable(args.container)}", file=sys.stderr)
    removed = []
    for each in dict.fromkeys(chosen):
        if not args.dry_run:
            client.delete(args.container, each.name)
        removed.append({"model": _reference(each.name), "bytes": each.bytes})
        said = "would remove" if args.dry_run else "removed"
        print(f"{said} {options.printable(_reference(each.name))}", file=sys.stderr)
    options.write_json(args.json, {"removed": removed, "dry_run": args.dry_run})
    return exit_codes.OK


def _files(client, container: str):
    from hapi_compute.store.errors import NotFound

    try:
        yield from (o for o in client.list(container) if o.name.endswith(_SUFFIX))
    except NotFound:
        return  # Nothing has ever been uploaded.


def _reference(name: str) -> str:
    """How ``X-Hapi-Model`` asks for the object ``name``."""
    stem = name.removesuffix(_SUFFIX)
    return f"sha256:{stem}" if model_hex(f"sha256:{stem}") else stem


def _find(text: str, files: list):
    stem = text.removeprefix("sha256:").removesuffix(_SUFFIX)
    exact = [each for each in files if each.name == stem + _SUFFIX]
    if exact:
        return exact[0]
    begins = []
    if len(stem) >= _SHORTEST and re.fullmatch("[0-9a-f]+", stem):
        begins = [each for each in files if each.name.startswith(stem)]
    if len(begins) != 1:
        why = "fits several models" if begins else "is no model there"
        raise ValueError(f"models rm: {text!r} {why} (hapi models ls)")
    return begins[0]


def _look_into(client, container: str, each) -> dict:
    """Input shape and freeze point from the file's header; None where it has none that is ours."""
    nothing = {"input": None, "freeze_at": None}

    def part(first: int, last: int) -> bytes:
        headers = {"Range": f"bytes={first}-{last}"}
        answer = client.get(
            container, each.name, headers=headers, if_match=each.etag, check=lambda answer: None
        )
        return answer.body if answer.status == 206 else answer.body[first : last + 1]

    try:
        length = int.from_bytes(part(0, 7), "little")
        if not 2 <= length <= min(_MOST, each.bytes - 8):
            return nothing
        document = json.loads(json.loads(part(8, 7 + length))["__metadata__"]["hapi"])
        return {"input": document["input"]["shape"], "freeze_at": str(document["output"])}
    except (ValueError, KeyError, TypeError, RecursionError):
        return nothing
