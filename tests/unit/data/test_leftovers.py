"""What a smaller upload leaves of a larger one, and ``--prune``."""

from __future__ import annotations

import pytest

from hapi_compute.data.listing import pin
from hapi_compute.data.manifest import Manifest
from hapi_compute.data.uploader import PutConfig, upload
from hapi_compute.store.names import SwiftUrl
from tests.unit.data.images import class_folders

TARGET = SwiftUrl("out", "d")


def put(store, source, samples: int, **options):
    return upload(PutConfig(source, TARGET, shard_samples=samples, **options), store)


@pytest.fixture
def source(tmp_path):
    return class_folders(tmp_path / "d")


def names(swift) -> set[str]:
    return set(swift.containers["out"])


def test_only_shards_of_earlier_manifests_are_removed(swift, store, source):
    put(store, source, 2)
    swift.put("out", "d/shard-000099.tar", b"somebody's")
    swift.put("out", "d/e/shard-000005.tar", b"another dataset's")
    swift.put("out", "shard-000005.tar", b"out of the prefix")
    swift.put("out", "d/shard-000005.tar", b"overwritten since")
    kept = names(swift) - {f"d/shard-00000{n}.tar" for n in (3, 4)}
    report = put(store, source, 4)
    assert (report.shards, report.left, report.stale, report.pruned) == (3, 2, 5, 0)
    # Two uploads later it is still known whose they are.
    report = put(store, source, 6)
    assert (report.shards, report.left, report.stale) == (2, 3, 6)
    before = dict(swift.containers["out"])
    assert put(store, source, 6).left == 3 and swift.containers["out"] == before
    report = put(store, source, 6, prune=True)
    assert (report.left, report.stale, report.pruned) == (0, 3, 3)
    assert names(swift) == kept - {"d/shard-000002.tar"}
    manifest = Manifest.from_json(swift.containers["out"]["d/hapi-dataset.json"].body, "m")
    assert manifest.earlier == () and pin(store, TARGET).samples == 12
    assert put(store, source, 6, prune=True).pruned == 0


def test_a_prune_that_was_broken_off_goes_on(swift, store, source, monkeypatch):
    put(store, source, 2)
    delete = store.delete

    def fail_once(container, name):
        if name.endswith("4.tar"):
            raise KeyboardInterrupt
        return delete(container, name)

    monkeypatch.setattr(store, "delete", fail_once)
    with pytest.raises(KeyboardInterrupt):
        put(store, source, 4, prune=True)
    monkeypatch.undo()
    assert pin(store, TARGET).samples == 12
    assert put(store, source, 4, prune=True).pruned >= 1
    shards = {f"d/shard-00000{n}.tar" for n in range(3)}
    assert names(swift) == shards | {"d/hapi-dataset.json", "d/hapi-names.json"}


def test_what_is_no_manifest_names_no_shards(swift, store, source):
    put(store, source, 2)
    swift.put("out", "d/hapi-dataset.json", b"{}")
    report = put(store, source, 6, prune=True)
    assert (report.pruned, report.stale) == (0, 4)
