"""``hapi info``: what the cluster says of itself, and whether it runs push-down."""

from __future__ import annotations

import argparse
import sys

from hapi_compute.cli import exit_codes, options

HELP = "say whether the cluster runs push-down, and within which limits"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_json(parser)
    options.add_auth(parser)


def run(args: argparse.Namespace) -> int:
    client = options.client(args)
    info = client.info()
    document = {
        "account": client.account,
        "storage_url": client.storage_url,
        "swift": info.get("swift", {}).get("version"),
        # None: the operator hides /info, and only trying tells.
        "pushdown": ("swift_hapi" in info) if info else None,
        "swift_hapi": info.get("swift_hapi"),
    }
    out = sys.stderr if args.json == "-" else sys.stdout
    for line in _lines(document):
        print(options.printable(line), file=out)
    options.write_json(args.json, document)
    return exit_codes.OK


def _lines(document: dict):
    yield f"account {document['account']} at {document['storage_url']}"
    if document["pushdown"] is None:
        yield "the cluster does not publish /info: whether it runs push-down, only a request tells"
        return
    yield f"Swift {document['swift'] or 'of an unknown version'}"
    found = document["swift_hapi"]
    if found is None:
        yield "no push-down: swift_hapi is not in the proxy's pipeline; images travel as they are"
        return
    yield f"push-down by swift_hapi {found.get('version')}"
    for name in ("dtypes", "encodings", "formats"):
        yield f"  {name:<18} {', '.join(map(str, found.get(name, ())))}"
    for name in ("model_container", "allow_anonymous", "opt_in"):
        yield f"  {name:<18} {found.get(name)}"
    for name, value in sorted(found.get("limits", {}).items()):
        yield f"  {name:<18} {_limit(name, value)}"


def _limit(name: str, value) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value} ({value / 2**20:,.0f} MiB)"
    return str(value)
