"""Hostile objects end in samples or in a typed error, never in another exception."""

from hypothesis import given, settings
from hypothesis import strategies as st

from swift_hapi.protocol.errors import HapiError
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import parse_transform
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.random_steps import SampleRandom, random_resized_box
from swift_hapi.samples.shard import read_shard
from tests.unit.samples.builders import encode, picture, tar

LIMITS = Limits(max_samples=16, max_pixels=100_000)
SPEC = parse_transform("resize=12, crop=8")
SEEDS = [
    encode(picture(24, 16)),
    encode(picture(24, 16), "PNG"),
    tar({"a.jpg": encode(picture(9, 9)), "a.cls": b"3", "b.png": encode(picture(9, 9), "PNG")}),
]


def consume(blob: bytes) -> None:
    try:
        contents = read_shard(blob, "object", LIMITS)
    except HapiError as error:
        assert error.status in (413, 415)
        return
    for sample in contents.samples:
        try:
            assert decode_sample(sample, SPEC, LIMITS).shape == (3, 8, 8)
        except HapiError as error:
            assert error.status in (400, 413, 422)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(SEEDS), st.data())
def test_flipped_bytes(seed, data):
    blob = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, min(len(blob), 4096) - 1))
        blob[position] = data.draw(st.integers(0, 255))
    consume(bytes(blob))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SEEDS), st.data())
def test_cut_short(seed, data):
    consume(seed[: data.draw(st.integers(0, len(seed)))])


@given(
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.tuples(st.floats(0.01, 0.5), st.floats(0.5, 1)),
    st.tuples(st.floats(0.01, 1), st.floats(1, 100)),
    st.text(),
)
def test_random_box_lies_in_the_image(width, height, scale, ratio, key):
    left, top, w, h = random_resized_box(width, height, scale, ratio, SampleRandom(1, 2, key))
    assert left >= 0 and top >= 0 and w >= 1 and h >= 1
    assert left + w <= width and top + h <= height
