from __future__ import annotations

import pytest

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.listing import align, pin
from hapi_compute.data.manifest import Manifest, ShardEntry
from hapi_compute.store.answer import Answer
from hapi_compute.store.client import ObjectInfo
from hapi_compute.store.errors import NotFound
from hapi_compute.store.names import SwiftUrl

URL = SwiftUrl("c", "p")


class Store:
    """Listings and a manifest from memory; the real ones are in the functional tests."""

    def __init__(self, *names: str, manifest: Manifest | None = None):
        self.names = names
        self.manifest = manifest

    def list(self, container, prefix=""):
        return [ObjectInfo(n, "e" * 32, 100) for n in self.names if n.startswith(prefix)]

    def get(self, container, name):
        if self.manifest is None:
            raise NotFound(name)
        return Answer(200, {}, self.manifest.to_json())


def manifest(*names: str, etag: str = "e" * 32) -> Manifest:
    entries = tuple(ShardEntry(name, etag, 10, 100) for name in names)
    return Manifest(("a", "b"), (5, 5), entries)


def test_manifest_decides():
    store = Store("p/1.tar", "p/2.tar", "p/old.tar", "p/hapi-dataset.json",
                  manifest=manifest("2.tar", "1.tar"))  # fmt: skip
    dataset = pin(store, URL)
    assert [s.name for s in dataset.shards] == ["p/1.tar", "p/2.tar"]
    assert (dataset.samples, dataset.bytes, dataset.stray) == (20, 200, 1)
    assert dataset.classes == ("a", "b") and not dataset.single


def test_manifest_and_store_must_agree():
    with pytest.raises(DatasetError, match="c/p/2.tar.*not in the store"):
        pin(Store("p/1.tar", "p/hapi-dataset.json", manifest=manifest("1.tar", "2.tar")), URL)
    changed = manifest("1.tar", etag="f" * 32)
    with pytest.raises(DatasetError, match="c/p/1.tar.*repeat 'hapi put'"):
        pin(Store("p/1.tar", "p/hapi-dataset.json", manifest=changed), URL)
    with pytest.raises(DatasetError, match="no shards"):
        pin(Store("p/hapi-dataset.json", manifest=manifest()), URL)


def test_foreign_tars_need_the_number_of_classes():
    store = Store("p/b.tar", "p/a.tar", "p/readme.txt", "p2/c.tar")
    with pytest.raises(DatasetError, match="--num-classes"):
        pin(store, URL)
    dataset = pin(store, URL, num_classes=3)
    assert [s.name for s in dataset.shards] == ["p/a.tar", "p/b.tar"]
    assert dataset.samples is None and dataset.classes == ("0", "1", "2") and dataset.stray == 1


def test_folders_are_classes():
    dataset = pin(Store("p/dog/1.jpg", "p/cat/x/2.png", "p/cat/1.JPEG", "p/ant/a.npy"), URL)
    assert dataset.classes == ("ant", "cat", "dog", "x")
    assert [(s.name, s.label) for s in dataset.shards] == [
        ("p/ant/a.npy", 0), ("p/cat/1.JPEG", 1), ("p/cat/x/2.png", 3), ("p/dog/1.jpg", 2),
    ]  # fmt: skip
    assert dataset.single and dataset.samples == 4


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ((), "no object"),
        (("p/readme.txt",), "no object"),
        (("p/1.jpg",), "c/p/1.jpg.*no folder"),
        (("p/a/1.jpg", "p/1.tar"), "both"),
    ],
)
def test_unusable(names, why):
    with pytest.raises(DatasetError, match=why):
        pin(Store(*names), URL)


def test_one_object_and_a_whole_container():
    assert [s.name for s in pin(Store("a/1.jpg", "b/2.jpg"), SwiftUrl("c")).shards] == [
        "a/1.jpg", "b/2.jpg",
    ]  # fmt: skip
    single = pin(Store("p/x.tar", "p/x.tar.sig"), SwiftUrl("c", "p/x.tar"), 2)
    assert [s.name for s in single.shards] == ["p/x.tar"]


def test_digest_follows_the_data():
    first = pin(Store("p/a/1.jpg", "p/b/2.jpg"), URL)
    assert first.digest == pin(Store("p/b/2.jpg", "p/a/1.jpg"), URL).digest
    assert first.digest != pin(Store("p/a/1.jpg", "p/b/3.jpg"), URL).digest
    assert first.subset([1]).shards == first.shards[1:]


def test_test_set_gets_the_labels_of_the_training_set():
    train = pin(Store("p/a/1.jpg", "p/b/1.jpg", "p/c/1.jpg"), URL)
    test = align(pin(Store("p/c/9.jpg", "p/a/8.jpg"), URL), train)
    assert [s.label for s in test.shards] == [0, 2] and test.classes == train.classes
    with pytest.raises(DatasetError, match="'d'"):
        align(pin(Store("p/d/1.jpg"), URL), train)
    packed = pin(Store("p/1.tar", manifest=manifest("1.tar")), URL)
    assert align(packed, packed) is packed
    with pytest.raises(DatasetError, match="differently"):
        align(packed, train)
