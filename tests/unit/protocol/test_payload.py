import dataclasses
import json
import struct

import numpy as np
import pytest
import safetensors.numpy

from swift_hapi.protocol import payload
from swift_hapi.protocol.payload import Features, PayloadInvalid, SampleError


@pytest.fixture
def features():
    return Features(
        features=np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        index=np.array([0, 2]),
        label=np.array([5, -1]),
        keys=("a/1", "ü/\u2028"),
        cut="layer1_0_relu",
        model="sha256:" + "0" * 64,
        errors=(SampleError(1, "b", "truncated"),),
    )


def test_round_trip_and_determinism(features):
    blob = payload.encode(features)
    assert blob == payload.encode(features)
    back = payload.decode(blob)
    for field in dataclasses.fields(Features):
        ours, theirs = getattr(features, field.name), getattr(back, field.name)
        assert np.array_equal(ours, theirs) if isinstance(ours, np.ndarray) else ours == theirs


def test_plain_safetensors_opens_it(features):
    tensors = safetensors.numpy.load(payload.encode(features))
    assert set(tensors) == {"features", "index", "label"}
    assert np.array_equal(tensors["features"], features.features)


def test_no_samples_keep_the_shape(features):
    none = dataclasses.replace(
        features,
        features=np.empty((0, 3, 4), np.float32),
        index=np.empty(0, np.int64),
        label=np.empty(0, np.int64),
        keys=(),
    )
    assert payload.decode(payload.encode(none)).features.shape == (0, 3, 4)


def test_every_truncation_is_typed(features):
    blob = payload.encode(features)
    for length in range(0, len(blob), 7):
        with pytest.raises(PayloadInvalid):
            payload.decode(blob[:length])


def test_huge_header_length_is_refused():
    with pytest.raises(PayloadInvalid, match="claims"):
        payload.decode(struct.pack("<Q", 1 << 63) + b"{}")


def test_parts_must_fit_together(features):
    for change in (
        {"keys": ("one",)},
        {"index": np.array([0, 1, 2])},
        {"features": np.zeros((3, 2), np.float32)},
    ):
        with pytest.raises(PayloadInvalid):
            payload.decode(payload.encode(dataclasses.replace(features, **change)))


def test_other_metadata_is_refused(features):
    tensors = {"features": np.zeros((1, 1), np.float32)}
    for metadata in ({}, {"hapi": "[]"}, {"hapi": "{"}, {"hapi": json.dumps({"version": 9})}):
        with pytest.raises(PayloadInvalid):
            payload.decode(safetensors.numpy.save(tensors, metadata=metadata))


def test_ranges_come_with_int8_and_with_nothing_else(features):
    rows = np.zeros((2, 3, 4), np.int8)
    ranges = np.ones((2, 3), np.float32)
    whole = dataclasses.replace(features, features=rows, scale=ranges, zero=ranges)
    back = payload.decode(payload.encode(whole))
    assert np.array_equal(back.scale, ranges) and back.features.dtype == np.int8
    for change in (
        {"features": rows.astype(np.float32)},
        {"scale": ranges[:, :2]},
        {"zero": np.full((2, 3), np.inf, np.float32)},
        {"scale": None, "zero": None},
    ):
        with pytest.raises(PayloadInvalid, match="does not fit"):
            payload.decode(payload.encode(dataclasses.replace(whole, **change)))
