"""``hapi ls [CONTAINER]``: what lies in the account, in a container, below a prefix."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

from hapi_compute.cli import exit_codes, options
from hapi_compute.cli.messages import classes, count, size

HELP = "list containers, or the objects and datasets in one"
#: most containers that are asked for their counts one by one
_ASKED = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "place", nargs="?", metavar="[swift://]CONTAINER[/PREFIX]",
        help="(default: the containers of the account)",
    )  # fmt: skip
    parser.add_argument(
        "-d", "--datasets", action="store_true", help="list datasets only (those with a manifest)"
    )
    options.add_json(parser)
    options.add_auth(parser)


def run(args: argparse.Namespace) -> int:
    client = options.client(args)
    out = sys.stderr if args.json == "-" else sys.stdout
    document = _account(client, out) if args.place is None else _container(client, args, out)
    options.write_json(args.json, document)
    return exit_codes.OK


def _account(client, out) -> dict:
    found = list(client.containers())
    if len(found) <= _ASKED:
        # An account's own counts follow when the cluster's updater comes by, if it runs one.
        with ThreadPoolExecutor(8, thread_name_prefix="hapi-ls") as pool:
            found = list(pool.map(lambda each: _counted(client, each), found))
    else:
        print(f"{len(found)} containers; counts may lag behind", file=sys.stderr)
    for each in found:
        name = options.printable(each.name)
        objects = "object " if each.objects == 1 else "objects"
        print(f"{each.objects:>9} {objects} {size(each.bytes):>9}  {name}", file=out)
    return {
        "account": client.account,
        "containers": [each.__dict__ for each in found],
    }


def _counted(client, found):
    """A container with the counts that it has itself."""
    answer = client.head(found.name)
    if answer is None:
        return found  # Removed since.
    counts = (answer.headers.get(f"X-Container-{what}") for what in ("Object-Count", "Bytes-Used"))
    return type(found)(found.name, *(int(count or 0) for count in counts))


def _container(client, args: argparse.Namespace, out) -> dict:
    from hapi_compute.data.manifest import NAME, Manifest
    from hapi_compute.store.errors import NotFound
    from hapi_compute.store.names import SwiftUrl

    url = SwiftUrl.parse(options.swift_url(args.place))
    objects, datasets = [], []
    objects_there = total = 0
    try:
        for each in client.list(url.container, url.prefix):
            objects_there, total = objects_there + 1, total + each.bytes
            if each.name.rpartition("/")[2] == NAME:
                datasets.append(each.name)
            if not args.datasets:
                print(f"{size(each.bytes):>9}  {options.printable(each.name)}", file=out)
                if args.json is not None:
                    objects.append({"name": each.name, "bytes": each.bytes, "etag": each.etag})
    except NotFound:
        raise NotFound(f"{url}: there is no container {url.container!r}") from None
    print(f"{count(objects_there, 'object')}, {size(total)}", file=out)
    found = []
    for name in datasets:
        where = SwiftUrl(url.container, name.rpartition("/")[0])
        body = client.get(url.container, name).body
        manifest = Manifest.from_json(body, f"{url.container}/{name}")
        print(
            f"dataset {options.printable(str(where))}: {count(manifest.samples, 'sample')}, "
            f"{classes(len(manifest.classes))}, {count(len(manifest.shards), 'shard')}, "
            f"{manifest.digest}",
            file=out,
        )
        found.append(
            {
                "url": str(where),
                "digest": manifest.digest,
                "samples": manifest.samples,
                "shards": len(manifest.shards),
                "bytes": sum(shard.bytes for shard in manifest.shards),
                "classes": dict(zip(manifest.classes, manifest.class_counts, strict=True)),
            }
        )
    document = {"url": str(url), "count": objects_there, "bytes": total, "datasets": found}
    return document if args.datasets else document | {"objects": objects}
