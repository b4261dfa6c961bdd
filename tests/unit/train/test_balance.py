from __future__ import annotations

import pytest

from hapi_compute.data.listing import Dataset, Shard
from hapi_compute.data.manifest import Manifest
from hapi_compute.store.answer import Answer
from hapi_compute.store.errors import NotFound
from hapi_compute.store.names import SwiftUrl
from hapi_compute.train.balance import balanced, class_weights
from hapi_compute.train.config import TrainConfig
from tests.unit.train.test_config import BASE

TARS = Dataset(SwiftUrl("c", "p"), (Shard("p/a.tar", "e", 9, 5),), ("x", "y"))


class Store:
    def __init__(self, manifest: Manifest | None):
        self._manifest = manifest

    def get(self, container, name):
        assert (container, name) == ("c", "p/hapi-dataset.json")
        if self._manifest is None:
            raise NotFound("none")
        return Answer(200, {}, self._manifest.to_json())


def weights(text, dataset=TARS, manifest=None, classes=2):
    config = TrainConfig(**BASE | {"class_weights": text})
    return class_weights(config, dataset, Store(manifest), classes)


def test_every_class_has_the_same_part():
    found = balanced([30, 10, 0])
    assert found[0] * 30 == pytest.approx(found[1] * 10) and found[2] == 0
    assert found[0] * 30 + found[1] * 10 == pytest.approx(40)


def test_counts_are_the_manifests():
    assert weights("balanced", manifest=Manifest(("x", "y"), (4, 1), ())) == balanced([4, 1])
    # A class more than the data has.
    found = weights("balanced", manifest=Manifest(("x", "y"), (4, 1), ()), classes=3)
    assert found == (*balanced([4, 1]), 0.0)


def test_counts_of_single_images():
    shards = tuple(Shard(f"p/{n}.jpg", "e", 9, 1, label) for n, label in enumerate((0, 1, 1)))
    assert weights("balanced", Dataset(SwiftUrl("c", "p"), shards, ("x", "y"))) == balanced([1, 2])


def test_what_is_given():
    assert weights(None) is None
    assert weights("1,2.5") == (1.0, 2.5)
    with pytest.raises(ValueError, match="3 numbers for 2 classes"):
        weights("1,2,3")
    with pytest.raises(ValueError, match="no hapi-dataset.json"):
        weights("balanced")


@pytest.mark.parametrize("bad", ["", "1,x", "-1,2", "0,0", "nan,1", "balance"])
def test_nonsense_is_refused(bad):
    with pytest.raises(ValueError, match="class_weights"):
        weights(bad)
