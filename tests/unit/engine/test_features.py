"""Features over the socket: equal to a local run, and everything the response says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zstandard

from swift_hapi.graph.interpreter import Head
from swift_hapi.protocol import digest, payload
from swift_hapi.protocol.headers import SampleRange
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import parse_transform
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import read_shard
from tests.unit.engine.client import Expecting, UnixConnection, ask, ask_expecting
from tests.unit.engine.conftest import (
    BATCH,
    TRANSFORM,
    feature_headers,
    jpeg,
    npy,
    post,
    shard,
    tar,
)


def local(model, split: str, body: bytes, batch: int = BATCH, wanted=None, transform=TRANSFORM):
    """What the engine should answer, computed here."""
    spec = parse_transform(transform) if transform else None
    samples = read_shard(body, "some/shard-0.tar", Limits(), wanted).samples
    decoded = np.stack([decode_sample(sample, spec, Limits()) for sample in samples])
    cuts = model.extractor.cuts_for(decoded.shape[1:])
    head = Head(model.extractor, cuts[model.extractor.resolve(split).index])
    rows = [
        head(torch.from_numpy(decoded[i : i + batch])).numpy()
        for i in range(0, len(decoded), batch)
    ]
    return np.concatenate(rows)


@pytest.mark.parametrize("split", ["input", "maxpool", "layer2_0_relu_1", "avgpool", "7"])
def test_same_bits_as_local(engine, models, split):
    body = shard(10)
    answer = ask_expecting(
        engine.socket, "POST", "/v1/features", body, feature_headers(models[0].digest, split)
    )
    assert answer.status == 200, answer
    features = payload.decode(answer.body)
    assert np.array_equal(features.features, local(models[0], split, body))
    assert features.index.tolist() == list(range(10))
    assert features.label.tolist() == [i % 3 for i in range(10)]
    assert features.keys == tuple(f"{i:04d}" for i in range(10))
    assert features.cut == models[0].extractor.resolve(split).name
    assert features.model == models[0].digest
    assert features.errors == ()


def test_response_headers(engine, models):
    answer = post(engine, shard(3), feature_headers(models[0].digest))
    assert answer.status == 200
    headers = answer.headers
    assert headers["Content-Type"] == "application/vnd.hapi.features+safetensors"
    assert int(headers["Content-Length"]) == len(answer.body)
    assert digest.matches(headers["Content-Digest"], answer.body)
    assert headers["ETag"].startswith('W/"')
    assert headers["X-Hapi-Model"] == models[0].digest
    assert headers["X-Hapi-Split"] == "avgpool"
    assert headers["X-Hapi-Dtype"] == "float32"
    assert headers["X-Hapi-Samples"] == "0-2/3"
    assert headers["X-Hapi-Batch-Size"] == "3"
    assert headers["X-Hapi-Cache"] == "miss"
    assert headers["X-Hapi-Source-Etag"] == "d41d8cd98f00b204e9800998ecf8427e"
    assert f"torch={torch.__version__}" in headers["X-Hapi-Numerics"]
    assert "pillow=" in headers["X-Hapi-Numerics"]
    assert headers["Content-Encoding"] is None
    vary = {word.strip() for word in headers["Vary"].split(",")}
    assert {"Accept-Encoding", "X-Hapi-Model", "X-Hapi-Split", "X-Hapi-Transform"} <= vary
    stages = dict(item.strip().split(";dur=") for item in headers["Server-Timing"].split(","))
    assert list(stages) == ["queue", "read", "decode", "infer", "encode"]
    assert float(stages["decode"]) > 0 and float(stages["infer"]) > 0


def test_same_request_same_bytes(engine, models):
    body, headers = shard(7), feature_headers(models[0].digest)
    assert post(engine, body, headers).body == post(engine, body, headers).body


def test_keep_alive_serves_two_requests(engine, models):
    connection = UnixConnection(engine.socket)
    for count in (1, 2):
        connection.request("POST", "/v1/features", shard(count), feature_headers(models[0].digest))
        answer = connection.getresponse()
        assert answer.status == 200
        assert len(payload.decode(answer.read())) == count
    connection.close()


def test_batch_size_is_an_upper_bound(engine, models):
    body = shard(6)
    answer = post(engine, body, feature_headers(models[0].digest, X_Hapi_Batch_Size="2"))
    assert answer.headers["X-Hapi-Batch-Size"] == "2"
    expected = local(models[0], "avgpool", body, batch=2)
    assert np.array_equal(payload.decode(answer.body).features, expected)
    answer = post(engine, body, feature_headers(models[0].digest, X_Hapi_Batch_Size="500"))
    assert answer.headers["X-Hapi-Batch-Size"] == str(BATCH)


def test_range_of_samples(engine, models):
    body = shard(10)
    answer = post(engine, body, feature_headers(models[0].digest, X_Hapi_Samples="3-8"))
    assert answer.headers["X-Hapi-Samples"] == "3-8/10"
    features = payload.decode(answer.body)
    assert features.index.tolist() == [3, 4, 5, 6, 7, 8]
    expected = local(models[0], "avgpool", body, wanted=SampleRange(3, 8))
    assert np.array_equal(features.features, expected)


def test_range_beyond_the_shard(engine, models):
    answer = post(engine, shard(3), feature_headers(models[0].digest, X_Hapi_Samples="2-3"))
    assert (answer.status, answer.problem) == (416, "sample-range")


def test_single_image(engine, models):
    headers = feature_headers(models[0].digest, X_Hapi_Object="/v1/AUTH_test/c/a%20dir/cat.jpg")
    answer = post(engine, jpeg(5), headers)
    features = payload.decode(answer.body)
    assert features.keys == ("a dir/cat.jpg",)
    assert features.label.tolist() == [-1]
    assert np.array_equal(features.features, local(models[0], "avgpool", jpeg(5)))


def test_other_image_size_than_the_model_was_made_for(engine, models):
    transform = "resize=40, crop=32x48"
    body = shard(3)
    answer = post(
        engine, body, feature_headers(models[0].digest, "layer3_1_relu_1",
                                      X_Hapi_Transform=transform)
    )  # fmt: skip
    features = payload.decode(answer.body).features
    expected = local(models[0], "layer3_1_relu_1", body, transform=transform)
    assert features.shape == (3, 256, 2, 3)
    assert np.array_equal(features, expected)


def test_stored_tensors(engine, models):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, 48, 48), dtype=np.float32) for _ in range(5)]
    body = tar([(f"{i}.npy", npy(array)) for i, array in enumerate(arrays)])
    headers = feature_headers(models[0].digest, X_Hapi_Transform=None)
    answer = post(engine, body, headers)
    assert answer.status == 200, answer.body
    expected = local(models[0], "avgpool", body, transform=None)
    assert np.array_equal(payload.decode(answer.body).features, expected)


def test_stored_tensors_of_different_shapes(engine, models):
    shapes = [(3, 48, 48), (3, 64, 64), (3, 48, 48)]
    body = tar([(f"{i}.npy", npy(np.zeros(s, np.float32))) for i, s in enumerate(shapes)])
    headers = feature_headers(models[0].digest, X_Hapi_Transform=None)
    answer = post(engine, body, headers)
    assert (answer.status, answer.problem) == (422, "undecodable-sample")
    assert answer.json()["sample"] == 1 and answer.json()["key"] == "1"
    answer = post(engine, body, headers | {"X-Hapi-On-Error": "report"})
    features = payload.decode(answer.body)
    assert features.index.tolist() == [0, 2]
    assert [error.index for error in features.errors] == [1]


def test_first_bad_sample_fails_the_request(engine, models):
    answer = post(engine, shard(9, broken=(6, 8)), feature_headers(models[0].digest))
    assert (answer.status, answer.problem) == (422, "undecodable-sample")
    assert answer.json()["sample"] == 6
    assert answer.json()["key"] == "0006"
    assert answer.json()["reason"]
    assert answer.json()["trans_id"] == "tx123-test"


def test_bad_samples_are_reported(engine, models):
    body = shard(9, broken=(0, 6))
    answer = post(engine, body, feature_headers(models[0].digest, X_Hapi_On_Error="report"))
    assert answer.headers["X-Hapi-Samples"] == "0-8/9"
    features = payload.decode(answer.body)
    assert features.index.tolist() == [1, 2, 3, 4, 5, 7, 8]
    assert features.keys == tuple(f"{i:04d}" for i in features.index)
    assert [(error.index, error.key) for error in features.errors] == [(0, "0000"), (6, "0006")]
    assert all(error.reason for error in features.errors)
    whole = local(models[0], "avgpool", shard(9), batch=9)[features.index]
    assert np.allclose(features.features, whole, rtol=1e-5, atol=1e-5 * np.abs(whole).max())


def test_all_samples_bad(engine, models):
    body = shard(3, broken=(0, 1, 2))
    answer = post(
        engine, body, feature_headers(models[0].digest, "maxpool", X_Hapi_On_Error="report")
    )
    assert answer.status == 200
    features = payload.decode(answer.body)
    assert features.features.shape == (0, 64, 16, 16)
    assert len(features.errors) == 3


def test_zstd(engine, models):
    body = shard(3)
    plain = post(engine, body, feature_headers(models[0].digest, "maxpool"))
    answer = post(
        engine, body, feature_headers(models[0].digest, "maxpool", Accept_Encoding="zstd")
    )
    assert answer.headers["Content-Encoding"] == "zstd"
    assert int(answer.headers["Content-Length"]) == len(answer.body)
    assert digest.matches(answer.headers["Content-Digest"], answer.body)
    assert zstandard.ZstdDecompressor().decompress(answer.body) == plain.body
    assert answer.headers["ETag"] != plain.headers["ETag"]


def test_none_match(engine, models):
    body, headers = shard(2), feature_headers(models[0].digest)
    tag = post(engine, body, headers).headers["ETag"]
    admitted = engine.status()["counters"]["admitted"]
    answer = ask_unread(engine, body, headers | {"If-None-Match": f'"other", {tag}'})
    assert (answer.status, answer.body) == (304, b"")
    assert answer.headers["ETag"] == tag
    assert answer.headers["Connection"] == "close"
    assert engine.status()["counters"]["admitted"] == admitted
    other = headers | {"If-None-Match": tag, "X-Hapi-Source-Etag": "changed"}
    assert post(engine, body, other).status == 200


def test_head(engine, models):
    headers = feature_headers(models[0].digest, "7")
    counters = engine.status()["counters"]
    answer = ask(engine.socket, "HEAD", "/v1/features", headers=headers)
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["Content-Length"] is None
    after = engine.status()["counters"]
    assert after["admitted"] == counters["admitted"] and after["samples"] == counters["samples"]
    got = post(engine, shard(1), headers)
    for name in ("ETag", "X-Hapi-Model", "X-Hapi-Split", "X-Hapi-Numerics", "Vary"):
        assert answer.headers[name] == got.headers[name]
    answer = ask(
        engine.socket, "HEAD", "/v1/features", headers=headers | {"If-None-Match": "*"}
    )
    assert answer.status == 304


def ask_unread(engine, body, headers):
    """An answer that must come without the body having been asked for."""
    with Expecting(engine.socket, "POST", "/v1/features", len(body), headers) as request:
        return request.answer()


@pytest.mark.parametrize(
    "change, status, problem, word",
    [
        ({"X_Hapi_Model": None}, 400, "bad-header", "X-Hapi-Model"),
        ({"X_Hapi_Model": "sha256:" + "0" * 64}, 404, "model-not-found", "0" * 64),
        ({"X_Hapi_Model": "no-such-name"}, 404, "model-not-found", "no-such-name"),
        ({"X_Hapi_Split": None}, 400, "bad-header", "X-Hapi-Split"),
        ({"X_Hapi_Split": "avgpol"}, 400, "bad-cut", "avgpool"),
        ({"X_Hapi_Split": "9999"}, 400, "bad-cut", "9999"),
        ({"X_Hapi_Transform": "crop=64, blur=3"}, 400, "bad-transform", "blur"),
        ({"X_Hapi_Transform": "resize=64"}, 400, "bad-transform", "size"),
        ({"X_Hapi_Transform": "crop=2400"}, 413, "too-large", "one sample"),
        ({"X_Hapi_Samples": "5-1"}, 400, "bad-header", "X-Hapi-Samples"),
        ({"X_Hapi_Samples": "0-40"}, 413, "too-large", "41 samples"),
        ({"X_Hapi_Split": "input", "X_Hapi_Transform": "crop=512",
          "X_Hapi_Samples": "0-3"}, 413, "too-large", "output"),
        ({"X_Hapi_Dtype": "bfloat16"}, 400, "bad-header", "X-Hapi-Dtype"),
        ({"X_Hapi_Batch_Size": "0"}, 400, "bad-header", "X-Hapi-Batch-Size"),
        ({"X_Hapi_On_Error": "ignore"}, 400, "bad-header", "X-Hapi-On-Error"),
        ({"X_Hapi_Deadline": "soon"}, 400, "bad-header", "X-Hapi-Deadline"),
        ({"X_Hapi_Source_Etag": None}, 400, "bad-header", "X-Hapi-Source-Etag"),
    ],
)  # fmt: skip
def test_refused_before_the_body(engine, models, change, status, problem, word):
    before = engine.status()["counters"]
    answer = ask_unread(engine, shard(2), feature_headers(models[0].digest, **change))
    assert (answer.status, answer.problem) == (status, problem)
    assert word in answer.json()["detail"]
    assert answer.json()["trans_id"] == "tx123-test"
    assert answer.headers["Connection"] == "close"
    after = engine.status()["counters"]
    assert after["admitted"] == before["admitted"]
    assert after["refused"] == before["refused"] + 1


def test_no_length(engine, models):
    headers = feature_headers(models[0].digest, Transfer_Encoding="chunked")
    answer = ask(engine.socket, "POST", "/v1/features", None, headers)
    assert (answer.status, answer.problem) == (400, "bad-header")
    assert "Content-Length" in answer.json()["detail"]


def test_too_large_an_object(engine, models):
    headers = feature_headers(models[0].digest)
    with Expecting(engine.socket, "POST", "/v1/features", 10**15, headers) as request:
        answer = request.answer()
    assert (answer.status, answer.problem) == (413, "too-large")


@pytest.mark.parametrize(
    "body, status, problem",
    [
        (b"", 415, "unsupported-format"),
        (b"just some text", 415, "unsupported-format"),
        (b"GIF89a" + bytes(2000), 415, "unsupported-format"),
        (shard(4)[:2000], 415, "unsupported-format"),
        (shard(41), 413, "too-large"),
        (jpeg(1)[:500], 422, "undecodable-sample"),
        (npy(np.zeros((3, 64, 64), np.float32)), 400, "bad-transform"),
    ],
)
def test_bad_objects(engine, models, body, status, problem):
    answer = post(engine, body, feature_headers(models[0].digest))
    assert (answer.status, answer.problem) == (status, problem)
    assert engine.idle()


def test_images_without_a_transform(engine, models):
    answer = post(engine, jpeg(1), feature_headers(models[0].digest, X_Hapi_Transform=None))
    assert (answer.status, answer.problem) == (400, "bad-transform")


def test_too_large_an_output_known_after_the_samples(engine, models):
    headers = feature_headers(models[0].digest, "input", X_Hapi_Transform="crop=512")
    answer = post(engine, shard(3), headers)
    assert (answer.status, answer.problem) == (413, "too-large")
    assert "3 samples" in answer.json()["detail"]
