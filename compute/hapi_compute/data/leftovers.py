"""Shards of earlier uploads that a later one has left below the prefix.

A manifest names those of the manifest before it, so that they can still be told from other objects
when several uploads have gone by. Nothing but what a manifest has named, with the ETag that it
named, is ever taken for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.manifest import NAME, NAMES, Manifest
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import NotFound
from hapi_compute.store.names import SwiftUrl


def earlier(client: SwiftClient, target: SwiftUrl) -> Manifest | None:
    """The manifest that lies at ``target``; None if there is none that can be read."""
    try:
        body = client.get(target.container, target.name(NAME)).body
        return Manifest.from_json(body, target.name(NAME))
    except (NotFound, DatasetError):
        return None


def left_over(
    old: Manifest | None, target: SwiftUrl, there: Mapping[str, str], kept: set[str]
) -> tuple[tuple[str, str], ...]:
    """Name below the prefix and ETag of each object that only ``old`` and those before it name.

    :param there: full name to ETag of what lies below the prefix
    :param kept: names below the prefix that the new manifest needs
    """
    if old is None:
        return ()
    known = {(shard.name, shard.etag) for shard in old.shards} | set(old.earlier)
    if old.names is not None:
        known.add((NAMES, old.names))
    return tuple(
        sorted(
            (name, etag)
            for name, etag in known
            if name not in kept | {NAME} and there.get(target.name(name)) == etag
        )
    )


def remove(
    client: SwiftClient, target: SwiftUrl, objects: tuple[tuple[str, str], ...], jobs: int
) -> None:
    """Remove what :func:`left_over` has found."""
    with ThreadPoolExecutor(jobs, thread_name_prefix="hapi-prune") as pool:
        names = [target.name(name) for name, _ in objects]
        list(pool.map(lambda name: client.delete(target.container, name), names))
