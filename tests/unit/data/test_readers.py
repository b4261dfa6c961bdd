from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from hapi_compute.data import readers
from hapi_compute.data.errors import DatasetError, LabelMissing
from hapi_compute.data.listing import Shard
from hapi_compute.data.packing import build_tar
from hapi_compute.data.readers import FeatureReader, Pushdown, RawReader, falls_back
from hapi_compute.data.shards import Job
from hapi_compute.data.timings import Timings
from hapi_compute.store.answer import Answer
from hapi_compute.store.errors import (
    AuthFailed,
    Corrupted,
    NotFound,
    Overwritten,
    PushdownUnavailable,
    Transient,
    Unreachable,
)
from hapi_compute.store.features import FeatureStats
from hapi_compute.store.retry import Stopped
from swift_hapi.protocol.errors import (
    AccountLimit,
    BadCut,
    DeadlineExceeded,
    DtypeOverflow,
    EngineBusy,
    HapiError,
    ModelForbidden,
    TooLarge,
    UndecodableSample,
)
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.payload import Features
from swift_hapi.protocol.transform import parse_transform
from tests.unit.data.images import picture

SPEC = parse_transform("resize=8x8")
IMAGE = (3, 8, 8)


def shard_of(samples, count=None) -> tuple[Shard, bytes]:
    tar = build_tar(samples)
    return Shard("p/s.tar", "e", len(tar), count), tar


class Objects:
    """Plain GETs out of memory."""

    def __init__(self, body: bytes):
        self.body = body
        self.gets = 0

    def get(self, container, name, *, if_match, sleep):
        self.gets += 1
        return Answer(200, {}, self.body)


def load_all(shard, shape=IMAGE):
    out = np.empty((len(shard), *shape), dtype=np.float32)
    for position in range(len(shard)):
        shard.rows.load(position, out[position])
    return out


def raw_reader(body, num_classes=10, limits=None):
    return RawReader(Objects(body), "c", num_classes, Timings(), limits)


SAMPLES = [(f"k{i}", "jpg", i, picture(i)) for i in range(5)]


def test_raw_shard():
    shard, tar = shard_of(SAMPLES, 5)
    reader = raw_reader(tar)
    found = reader.read(Job(shard, 0, SPEC), None)
    assert found.keys == ("k0", "k1", "k2", "k3", "k4")
    assert found.labels.tolist() == [0, 1, 2, 3, 4]
    assert found.bytes_received == len(tar)
    assert load_all(found).std() > 0
    assert reader.timings.snapshot()["decode"] > 0


def test_a_bad_image_is_named_when_it_is_loaded():
    shard, tar = shard_of([*SAMPLES, ("broken", "jpg", 0, picture(9)[:100])])
    found = raw_reader(tar).read(Job(shard, 0, SPEC), None)
    with pytest.raises(UndecodableSample, match="c/p/s.tar.*broken") as caught:
        load_all(found)
    assert caught.value.members["key"] == "broken"


@pytest.mark.parametrize("label", [10, 11])
def test_labels_beyond_the_classes_are_named(label):
    shard, tar = shard_of([*SAMPLES, ("far", "jpg", label, picture(9))])
    with pytest.raises(LabelMissing, match=f"c/p/s.tar.*'far' has label {label}.*10 classes"):
        raw_reader(tar).read(Job(shard, 0, SPEC), None)


def test_single_images_have_the_label_of_the_listing():
    shard = Shard("p/cat/1.jpg", "e", 1, 1, label=3)
    found = raw_reader(picture(1)).read(Job(shard, 0, SPEC), None)
    assert (found.labels.tolist(), found.keys) == ([3], ("p/cat/1.jpg",))


def test_single_image_without_label():
    shard = Shard("p/1.jpg", "e", 1, 1)
    with pytest.raises(LabelMissing, match="c/p/1.jpg.*has no label"):
        raw_reader(picture(1)).read(Job(shard, 0, SPEC), None)


def test_number_of_samples_must_be_the_manifests():
    shard, tar = shard_of(SAMPLES, 6)
    with pytest.raises(DatasetError, match="has 5 samples, its manifest says 6"):
        raw_reader(tar).read(Job(shard, 0, SPEC), None)


class Storage:
    """Stands in for ``get_features``: computes, or fails as told."""

    def __init__(self, errors=()):
        self.errors = list(errors)
        self.requests = []

    def __call__(self, client, container, name, request, *, attempts, **_):
        self.requests.append((request, attempts))
        if self.errors:
            error = self.errors.pop(0)
            if error is not None:
                raise error
        low, high = (0, 4) if request.samples is None else (
            request.samples.first, request.samples.last,
        )  # fmt: skip
        index = np.arange(low, high + 1)
        features = np.repeat(index[:, None], 2, 1).astype(np.float32)
        keys = tuple(f"k{i}" for i in index)
        found = Features(features, index, index, keys, request.split, request.model)
        return found, FeatureStats(100, {"infer": 0.5}, micro_batch=2, total=5)


@pytest.fixture
def feature_reader(monkeypatch):
    pools = []

    def make(errors=(), limits=None, body=None, **pushdown):
        storage = Storage(errors)
        monkeypatch.setattr(readers, "get_features", storage)
        shard, tar = shard_of(SAMPLES, 5)
        seen = []

        def head(batch):
            seen.append(len(batch))
            return np.full((len(batch), 2), -1, dtype=np.float32)

        pools.append(ThreadPoolExecutor(1))
        raw = raw_reader(tar, limits=limits)
        options = {"model": "sha256:" + "a" * 64, "cut": "x", "cut_bytes": 8, "micro_batch": 4}
        reader = FeatureReader(
            None, "c", 10, Pushdown(**options | pushdown), raw, head, pools[-1], IMAGE
        )
        return reader, storage, Job(shard, 0, SPEC), seen, raw

    yield make
    for pool in pools:
        pool.shutdown()


def test_features(feature_reader):
    reader, storage, job, _, _ = feature_reader()
    found = reader.read(job, None)
    assert load_all(found, (2,))[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert not found.fallback and found.bytes_received == 100
    assert storage.requests[0][0].batch_size == 4


def test_answers_larger_than_a_node_may_send_are_asked_for_in_ranges(feature_reader):
    reader, storage, job, _, _ = feature_reader(limits=Limits(max_output_bytes=16))
    found = reader.read(job, None)
    assert [str(request.samples) for request, _ in storage.requests] == ["0-1", "2-3", "4-4"]
    assert load_all(found, (2,))[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert found.storage == {"infer": 1.5} and found.bytes_received == 300


def test_fallback_runs_the_head_here_in_the_same_micro_batches(feature_reader):
    reader, storage, job, seen, raw = feature_reader([None, EngineBusy("full")])
    assert not reader.read(job, None).fallback
    found = reader.read(job, None)
    assert found.fallback and found.bytes_received == job.shard.bytes
    assert seen == [2, 2, 1]  # As the storage tier said it does, not the 4 asked for.
    assert load_all(found, (2,)).tolist() == [[-1, -1]] * 5
    assert found.labels.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "transform", "dtype"),
    [
        ({}, SPEC, "float32"),
        ({"dtype": "int8"}, SPEC, "int8"),
        ({"dtype": "float16", "pixels": True}, SPEC, "uint8"),
        ({"dtype": "float16", "pixels": True}, None, "float16"),
    ],
)
def test_what_features_are_asked_for_as(feature_reader, options, transform, dtype):
    reader, storage, job, _, _ = feature_reader(**options)
    reader.read(replace(job, transform=transform), None)
    assert storage.requests[0][0].dtype == dtype
    width = {"float32": 4, "float16": 2}.get(dtype, 1)
    assert reader.expected_bytes(replace(job, transform=transform)) == 5 * 8 * width // 4


def test_a_fallback_rounds_as_the_storage_tier_does(feature_reader):
    reader, _, job, _, _ = feature_reader([EngineBusy("full")], dtype="float16")
    reader._local_head = lambda batch: np.full((len(batch), 2), 0.1, np.float32)
    found = load_all(reader.read(job, None), (2,))
    assert np.array_equal(found, np.full((5, 2), np.float16(0.1), np.float32))


def test_a_fallback_that_does_not_fit_names_the_sample(feature_reader):
    reader, _, job, _, _ = feature_reader([EngineBusy("full")], dtype="float16")
    reader._local_head = lambda batch: np.array([[1, 1]] * (len(batch) - 1) + [[1, 1e6]], "f4")
    with pytest.raises(DtypeOverflow, match="k3.*float16") as caught:
        reader.read(job, None)
    assert caught.value.members["key"] == "k3"


def test_fallback_micro_batches_follow_ranges(feature_reader):
    reader, _, job, seen, _ = feature_reader([Unreachable("x")], Limits(max_output_bytes=24))
    reader.read(job, None)
    assert seen == [3, 2]


def test_patience_ends_and_comes_back(feature_reader):
    reader, storage, job, _, _ = feature_reader([EngineBusy("x")] * 3)
    for _ in range(5):
        reader.read(job, None)
    assert [attempts for _, attempts in storage.requests] == [None, None, 1, 1, None]


def test_a_store_without_filter_is_asked_once(feature_reader):
    reader, storage, job, _, _ = feature_reader([PushdownUnavailable("x")])
    assert reader.read(job, None).fallback and reader.read(job, None).fallback
    assert len(storage.requests) == 1


def test_required_pushdown_does_not_fall_back(feature_reader):
    reader, _, job, _, raw = feature_reader([EngineBusy("full")], required=True)
    with pytest.raises(EngineBusy):
        reader.read(job, None)
    assert raw._client.gets == 0


def test_permanent_errors_are_raised(feature_reader):
    reader, _, job, _, raw = feature_reader([BadCut("no such cut")])
    with pytest.raises(BadCut):
        reader.read(job, None)
    assert raw._client.gets == 0


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EngineBusy("x"), True), (AccountLimit("x"), True), (DeadlineExceeded("x"), True),
        (Unreachable("x"), True), (Transient("x", status=502), True), (Corrupted("x"), True),
        (HapiError("x"), True), (PushdownUnavailable("x"), True),
        (BadCut("x"), False), (ModelForbidden("x"), False), (TooLarge("x"), False),
        (UndecodableSample("x"), False), (DtypeOverflow("x"), False),
        (NotFound("x"), False), (Overwritten("x"), False),
        (AuthFailed("x"), False), (Stopped("x"), False),
    ],
)  # fmt: skip
def test_what_falls_back(error, expected):
    assert falls_back(error) is expected
