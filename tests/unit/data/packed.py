"""Putting into a store in memory, and what then lies there."""

from __future__ import annotations

from hapi_compute.data.manifest import Manifest
from hapi_compute.data.uploader import PutConfig, upload
from hapi_compute.store.names import SwiftUrl
from swift_hapi.protocol.limits import Limits
from swift_hapi.samples.shard import read_shard

TARGET = SwiftUrl("out", "d")


def put(store, source, **options):
    return upload(PutConfig(source, TARGET, **{"shard_samples": 3} | options), store)


def content(swift) -> dict[str, tuple[str, bytes]]:
    """key -> (class, bytes) of everything below the target."""
    objects = swift.containers["out"]
    manifest = Manifest.from_json(objects["d/hapi-dataset.json"].body, "m")
    found = {}
    for entry in manifest.shards:
        for sample in read_shard(objects[f"d/{entry.name}"].body, entry.name, Limits()).samples:
            assert sample.key not in found
            found[sample.key] = (manifest.classes[sample.label], bytes(sample.data))
    assert len(found) == manifest.samples == sum(manifest.class_counts)
    return found
