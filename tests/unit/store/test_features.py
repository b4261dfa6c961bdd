from __future__ import annotations

import numpy as np
import pytest
import zstandard
from requests.structures import CaseInsensitiveDict

from hapi_compute.store.answer import Answer
from hapi_compute.store.errors import Corrupted, PushdownUnavailable
from hapi_compute.store.features import stats, verify
from swift_hapi.protocol import headers, payload
from swift_hapi.protocol.digest import content_digest
from swift_hapi.protocol.errors import HapiError
from swift_hapi.protocol.headers import FeatureRequest, SampleRange
from swift_hapi.protocol.payload import Features, SampleError

MODEL = "sha256:" + "a" * 64
REQUEST = FeatureRequest(model=MODEL, split="add_2")
LIMIT = 1 << 20


def features(index=(0, 1, 2), errors=(), cut="add_2", model=MODEL, dtype=np.float32) -> Features:
    n = len(index)
    return Features(
        features=np.arange(n * 4, dtype=dtype).reshape(n, 4),
        index=np.array(index, dtype=np.int64),
        label=np.zeros(n, dtype=np.int64),
        keys=tuple(f"k{i}" for i in index),
        cut=cut,
        model=model,
        errors=tuple(SampleError(i, f"k{i}", "bad") for i in errors),
    )


def answer(content: Features, body: bytes | None = None, **changes: str | None) -> Answer:
    body = payload.encode(content) if body is None else body
    every = {
        "Content-Type": headers.FEATURES_TYPE,
        "Content-Length": str(len(body)),
        headers.CONTENT_DIGEST: content_digest(body),
        headers.MODEL: MODEL,
        headers.SPLIT: "add_2",
        headers.DTYPE: "float32",
        headers.SAMPLES: "0-2/3",
        headers.SOURCE_ETAG: "e" * 32,
    }
    every |= {name.replace("_", "-"): value for name, value in changes.items()}
    there = {name: value for name, value in every.items() if value is not None}
    return Answer(200, CaseInsensitiveDict(there), body)


def check(given: Answer, request=REQUEST, etag="e" * 32) -> Features:
    return verify(given, request, etag, LIMIT, "features of c/o")


def test_good_answer():
    found = check(answer(features()))
    np.testing.assert_array_equal(found.features, features().features)
    assert found.keys == ("k0", "k1", "k2")


@pytest.mark.parametrize(
    "changes",
    [
        {"Content_Length": None},
        {"Content_Digest": None},
        {"Content_Digest": content_digest(b"other")},
        {"X_Hapi_Model": "sha256:" + "b" * 64},
        {"X_Hapi_Split": "add_3"},
        {"X_Hapi_Split": None},
        {"X_Hapi_Dtype": "float16"},
        {"X_Hapi_Source_Etag": "f" * 32},
        {"X_Hapi_Samples": None},
        {"X_Hapi_Samples": "0-3/4"},
        {"X_Hapi_Samples": "0-1/2"},
        {"X_Hapi_Samples": "0-2/4"},
        {"Content_Encoding": "br"},
        {"Content_Encoding": "zstd"},
    ],
)
def test_every_echo_is_compared(changes):
    with pytest.raises(Corrupted, match="c/o"):
        check(answer(features(), **changes))


@pytest.mark.parametrize(
    "content",
    [
        features(cut="add_3"),
        features(model="sha256:" + "b" * 64),
        features(index=(0, 2)),
        features(index=(0, 2, 1)),
        features(index=(0, 1, 3)),
        features(index=(0, 1, 2), errors=(1,)),
        features(dtype=np.int64),
    ],
)
def test_payload_must_be_what_was_asked_for(content):
    with pytest.raises(Corrupted, match="c/o"):
        check(answer(content))


def test_reported_samples_count():
    found = check(answer(features(index=(0, 2), errors=(1,))))
    assert len(found) == 2 and found.errors[0].key == "k1"


def test_ranges_are_compared():
    request = FeatureRequest(model=MODEL, split="add_2", samples=SampleRange(4, 5))
    assert len(check(answer(features((4, 5)), X_Hapi_Samples="4-5/9"), request)) == 2
    assert len(check(answer(features((4, 5)), X_Hapi_Samples="4-5/*"), request)) == 2
    with pytest.raises(Corrupted):
        check(answer(features((3, 4)), X_Hapi_Samples="3-4/9"), request)


def test_digest_is_of_the_bytes_as_sent_and_zstd_is_decoded():
    plain = payload.encode(features())
    packed = zstandard.ZstdCompressor(level=1).compress(plain)
    found = check(answer(features(), packed, Content_Encoding="zstd"))
    np.testing.assert_array_equal(found.features, features().features)


def test_zstd_bombs_are_refused():
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(LIMIT + 1))
    with pytest.raises(Corrupted, match="decompresses"):
        check(answer(features(), bomb, Content_Encoding="zstd"))
    # One that does not tell its size.
    stream = zstandard.ZstdCompressor(level=1, write_content_size=False).compressobj()
    bomb = stream.compress(bytes(LIMIT + 1)) + stream.flush()
    with pytest.raises(Corrupted, match="zstd"):
        check(answer(features(), bomb, Content_Encoding="zstd"))


def test_garbage_payload():
    with pytest.raises(HapiError) as caught:
        check(answer(features(), b"garbage garbage garbage"))
    assert caught.value.retryable


def test_store_without_filter():
    with pytest.raises(PushdownUnavailable, match="no hapi filter"):
        check(answer(features(), Content_Type="application/x-tar"))


def test_stats():
    found = stats(
        answer(
            features(),
            Server_Timing="queue;dur=1.5, read;dur=2, decode;dur=0.25,odd, infer;dur=1000",
            X_Hapi_Cache="miss",
            X_Hapi_Batch_Size="16",
            X_Hapi_Numerics="torch=1",
        )
    )
    assert found.timings == {"queue": 0.0015, "read": 0.002, "decode": 0.00025, "infer": 1.0}
    assert (found.cache, found.micro_batch, found.total, found.numerics) == (
        "miss", 16, 3, "torch=1",
    )  # fmt: skip
