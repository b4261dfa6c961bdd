"""Features in narrower types: those of float32, converted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zstandard

from swift_hapi.graph.packing import pack, unpack
from swift_hapi.protocol import payload
from swift_hapi.protocol.transform import parse_transform
from swift_hapi.samples.decode import normalised
from tests.unit.engine.client import ask_expecting
from tests.unit.engine.conftest import TRANSFORM, feature_headers, npy, post, shard, tar
from tests.unit.engine.test_features import local


def answered(engine, body, digest, split, dtype):
    headers = feature_headers(digest, split, **{"X-Hapi-Dtype": dtype})
    answer = ask_expecting(engine.socket, "POST", "/v1/features", body, headers)
    assert answer.status == 200 and answer.headers["X-Hapi-Dtype"] == dtype
    return payload.decode(answer.body)


@pytest.mark.parametrize("split", ["layer2_0_relu_1", "avgpool"])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("encoding", ["identity", "zstd"])
def test_narrow_features(engine, models, split, dtype, encoding):
    body = shard(10)
    headers = feature_headers(
        models[0].digest, split, **{"X-Hapi-Dtype": dtype, "Accept-Encoding": encoding}
    )
    answer = ask_expecting(engine.socket, "POST", "/v1/features", body, headers)
    assert answer.status == 200 and answer.headers["X-Hapi-Dtype"] == dtype
    blob = answer.body
    if encoding == "zstd":
        blob = zstandard.ZstdDecompressor().decompress(blob)
    features = payload.decode(blob)
    expected = local(models[0], split, body)
    packed, _ = pack(expected, dtype)
    assert np.array_equal(features.features, packed.rows)
    assert features.features.dtype == np.dtype(dtype)
    if dtype == "int8":
        assert np.array_equal(features.scale, packed.scale)
        assert np.array_equal(features.zero, packed.zero)
    error = np.abs(unpack(features.packed) - expected).max() / np.abs(expected).max()
    assert error <= {"float16": 1e-3, "int8": 5e-3}[dtype]


def test_pixels_are_the_input_before_mean_and_std(engine, models):
    body = shard(10)
    whole = answered(engine, body, models[0].digest, "input", "float32")
    pixels = answered(engine, body, models[0].digest, "input", "uint8")
    assert pixels.features.dtype == np.uint8
    spec = parse_transform(TRANSFORM)
    found = np.stack([normalised(row, spec) for row in pixels.features])
    assert np.array_equal(found, whole.features)


def test_pixels_and_floats_do_not_share_a_micro_batch(engine, models):
    body = shard(10)
    headers = [
        feature_headers(models[0].digest, "input", **{"X-Hapi-Dtype": dtype})
        for dtype in ("uint8", "float32") * 6
    ]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda each: post(engine, body, each), headers))
    found = [payload.decode(answer.body).features for answer in answers]
    for at, each in enumerate(found):
        assert np.array_equal(each, found[at % 2])


@pytest.mark.parametrize(
    ("dtype", "split", "more", "why"),
    [
        ("uint8", "maxpool", {}, "not the first"),
        ("bfloat16", "avgpool", {}, "none of float32, float16, int8, uint8"),
        ("uint8", "input", {"X-Hapi-Transform": None}, "without a transform"),
    ],
)
def test_what_cannot_travel_so(engine, models, dtype, split, more, why):
    headers = feature_headers(models[0].digest, split, **{"X-Hapi-Dtype": dtype})
    headers = {name: value for name, value in (headers | more).items() if value is not None}
    answer = post(engine, shard(2), headers)
    assert answer.status == 400 and answer.problem == "bad-header"
    assert "X-Hapi-Dtype" in answer.json()["detail"] and why in answer.json()["detail"]


@pytest.mark.parametrize("on_error", ["fail", "report"])
def test_features_beyond_float16(engine, models, on_error):
    arrays = [np.full((3, 64, 64), value, np.float32) for value in (1.0, 1e5, 2.0)]
    body = tar([(f"{at}.npy", npy(array)) for at, array in enumerate(arrays)])
    headers = feature_headers(
        models[0].digest, "input", **{"X-Hapi-Dtype": "float16", "X-Hapi-On-Error": on_error}
    )
    del headers["X-Hapi-Transform"]
    answer = post(engine, body, headers)
    if on_error == "fail":
        assert answer.status == 422 and answer.problem == "dtype-overflow"
        assert answer.json()["sample"] == 1 and "float16" in answer.json()["reason"]
        return
    features = payload.decode(answer.body)
    assert features.index.tolist() == [0, 2] and features.features[1, 0, 0, 0] == 2.0
    (error,) = features.errors
    assert error.index == 1 and "float16" in error.reason
