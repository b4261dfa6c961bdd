"""Options and output that several commands share."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path


def add_auth(parser: argparse.ArgumentParser) -> None:
    """``--auth-url --user --key --storage-url``, with ``ST_AUTH ST_USER ST_KEY`` behind them."""
    group = parser.add_argument_group("store")
    group.add_argument("--auth-url", metavar="URL", help="auth v1 URL (default: $ST_AUTH)")
    group.add_argument("--user", metavar="USER", help="account:user (default: $ST_USER)")
    group.add_argument("--key", metavar="KEY", help="secret key (default: $ST_KEY)")
    group.add_argument(
        "--storage-url", metavar="URL", help="work in this account instead of the user's own"
    )


def client(args: argparse.Namespace):
    """The :class:`~hapi_compute.store.client.SwiftClient` the options ask for.

    :raises ValueError: an option is missing
    """
    from hapi_compute.store.auth import Credentials
    from hapi_compute.store.client import SwiftClient

    values = {}
    for name, variable in (("auth_url", "ST_AUTH"), ("user", "ST_USER"), ("key", "ST_KEY")):
        values[name] = getattr(args, name) or os.environ.get(variable, "")
        if not values[name]:
            raise ValueError(f"give --{name.replace('_', '-')} or set {variable}")
    return SwiftClient(Credentials(**values, storage_url=args.storage_url))


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", metavar="PATH", help="write a machine-readable report ('-': to stdout)"
    )


def write_json(path: str | None, document: dict) -> None:
    """Write ``document`` where ``--json`` says; a file appears whole or not at all."""
    if path is None:
        return
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    temporary = Path(f"{path}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def size(text: str) -> int:
    """``16MB``, ``512 KiB`` or ``65536`` in bytes; for ``type=`` of an argument."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?I?B?)\s*", text, re.IGNORECASE)
    unit = _UNITS.get(found.group(2).upper()) if found else None
    if unit is None:
        raise argparse.ArgumentTypeError(f"{text!r}: want a size such as 16MB or 512KiB")
    return int(float(found.group(1)) * unit)
