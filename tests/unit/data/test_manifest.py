from __future__ import annotations

import dataclasses
import json

import pytest

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.manifest import Manifest, ShardEntry

MANIFEST = Manifest(
    ("cät", "dog"), (3, 2), (ShardEntry("shard-0.tar", "e" * 32, 5, 1024),), seed=4
)


def test_round_trip():
    text = MANIFEST.to_json()
    assert Manifest.from_json(text, "x") == MANIFEST
    assert text == MANIFEST.to_json()
    assert MANIFEST.samples == 5


def test_digest_follows_the_data():
    assert MANIFEST.digest == dataclasses.replace(MANIFEST, seed=9).digest
    entry = dataclasses.replace(MANIFEST.shards[0], etag="f" * 32)
    for other in ({"classes": ("cat", "dog")}, {"class_counts": (2, 3)}, {"shards": (entry,)}):
        assert dataclasses.replace(MANIFEST, **other).digest != MANIFEST.digest
    document = json.loads(MANIFEST.to_json())
    assert document["digest"] == MANIFEST.digest
    del document["digest"]
    assert Manifest.from_json(json.dumps(document).encode(), "x") == MANIFEST


def changed(**changes) -> bytes:
    document = json.loads(MANIFEST.to_json())
    return json.dumps(document | changes).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"{}", b"nonsense",
        changed(format="other"), changed(version=2), changed(shards=[{"name": "x"}]),
        changed(class_counts=[1]), changed(classes=7), changed(class_counts=[2, 3]),
        changed(digest="sha256:0"),
    ],
)  # fmt: skip
def test_bad_manifests(text):
    with pytest.raises(DatasetError, match="c/p/hapi-dataset.json"):
        Manifest.from_json(text, "c/p/hapi-dataset.json")
