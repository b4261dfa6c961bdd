from __future__ import annotations

import pytest

from hapi_compute.data.listing import Dataset, Shard
from hapi_compute.data.windows import training_windows
from hapi_compute.plan.demands import ObjectProfile, StorageProfile
from hapi_compute.plan.profile import ComputeProfile
from hapi_compute.store.names import SwiftUrl
from hapi_compute.train.config import TrainConfig
from hapi_compute.train.planning import setting_of, shared
from hapi_compute.train.probing import Probed
from tests.unit.train.test_config import BASE

OBJECTS = ObjectProfile(1000.0, 0.01, 0.0, 0.0, 10.0, 8e6)
STORAGE = StorageProfile("cut", 0.02, 0.015, 3.0)
COMPUTE = ComputeProfile({"cut": 0.01}, 0.001, 0.002)


def probed(storage=STORAGE) -> Probed:
    return Probed(COMPUTE, OBJECTS, storage, 1.0, 30)


def test_ranks_share_storage_tier_and_network():
    storage, bandwidth = shared(probed(), 4)
    assert bandwidth == pytest.approx(2e6)
    assert (storage.service, storage.inference) == (pytest.approx(0.08), pytest.approx(0.06))
    # The same seconds of theirs for one of ours, four times as many.
    assert storage.ratio(COMPUTE) == pytest.approx(4 * STORAGE.ratio(COMPUTE))
    assert shared(probed(), 1) == (STORAGE, 8e6)
    assert shared(probed(None), 2) == (None, 4e6)


def test_an_iteration_of_one_rank():
    shards = tuple(Shard(f"{i}.tar", "e", 10_000, 10) for i in range(12))
    dataset = Dataset(SwiftUrl.parse("swift://c/p"), shards, ("a", "b"))
    config = TrainConfig(**BASE | {"batch_size": 24, "window": 3, "decode_threads": 1})
    windows = training_windows(dataset, 0, 0, 3)
    alone = setting_of(config, dataset, windows, probed(), 24)
    assert (alone.batch, alone.shard, alone.window, alone.iterations) == (24, 10, 3, 5)
    one_of_six = setting_of(config, dataset, windows, probed(), 4, 6)
    # All ranks make the same steps; each asks for its own samples only.
    assert (one_of_six.batch, one_of_six.shard) == (4, 5)
    assert (one_of_six.window, one_of_six.iterations) == (1, 5)
