"""Hostile objects end in samples or in a typed error, never in another exception."""

import struct
import zlib

from hypothesis import given, settings
from hypothesis import strategies as st

from swift_hapi.protocol.errors import HapiError
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import parse_transform
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.random_steps import SampleRandom, random_resized_box
from swift_hapi.samples.shard import RawSample, read_shard
from tests.unit.samples import hostile
from tests.unit.samples.builders import encode, picture, tar

LIMITS = Limits(max_samples=16, max_pixels=100_000)
SPEC = parse_transform("resize=12, crop=8")
SEEDS = [
    encode(picture(24, 16)),
    encode(picture(24, 16), "PNG"),
    tar({"a.jpg": encode(picture(9, 9)), "a.cls": b"3", "b.png": encode(picture(9, 9), "PNG")}),
]


PICTURES = [
    encode(picture(24, 16)),
    encode(picture(24, 16), progressive=True),
    encode(picture(24, 16).convert("CMYK")),
    encode(picture(24, 16), "MPO", save_all=True, append_images=[picture(8, 8)]),
    *(encode(picture(24, 16).convert(mode), "PNG") for mode in ("RGB", "P", "LA", "1")),
    encode(picture(24, 16), "PNG", save_all=True, append_images=[picture(24, 16, 1)]),
]
TAGS = (
    0x0112, 0x011A, 0x011B, 0x0128, 0x0131, 0x014A, 0x02BC, 0x8769, 0x8825, 0x9286, 0x927C, 0xB001,
)  # fmt: skip
COUNTS = (1, 1, 1, 2, 4, 8, 0, 100, 2**32 - 1)


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


@st.composite
def exif(draw):
    """A directory whose entries have odd types, counts and places."""
    order = draw(st.sampled_from("<>"))
    kinds = st.integers(0, 17)
    places = st.sampled_from([8, 20, 40, 60, 0, 2**32 - 1])
    values = st.one_of(
        st.binary(min_size=4, max_size=4), places.map(lambda at: struct.pack(order + "I", at))
    )
    entry = st.tuples(st.sampled_from(TAGS), kinds, st.sampled_from(COUNTS), values)
    entries = draw(st.lists(entry, min_size=1, max_size=6))
    turn = (0x0112, 3, 1, struct.pack(order + "HH", draw(st.integers(0, 9)), 0))
    return hostile.tiff(turn, *entries, order=order) + draw(st.binary(min_size=40, max_size=80))


@st.composite
def jpeg_metadata(draw):
    code, head, body = draw(
        st.one_of(
            st.tuples(st.just(0xE1), st.just(b"Exif\0\0"), exif()),
            st.tuples(st.just(0xE2), st.just(b"MPF\0"), exif()),
            st.tuples(
                st.sampled_from([0xC4, 0xDA, 0xDB, 0xDD, 0xE0, 0xE1, 0xE2, 0xED, 0xEE, 0xFE]),
                st.sampled_from([b"", b"JFIF\0", b"Adobe", b"ICC_PROFILE\0", b"Photoshop 3.0\0"]),
                st.binary(max_size=60),
            ),
        )
    )
    return hostile.segment(code, head + body)


@st.composite
def png_metadata(draw):
    texts = (b"a\0", b"XML:com.adobe.xmp\0\0\0\0\0", b"Raw profile type exif\0\nexif\n 4\n")
    kind, body = draw(
        st.one_of(
            st.tuples(st.just(b"eXIf"), exif()),
            st.tuples(
                st.sampled_from([b"tEXt", b"zTXt", b"iTXt"]),
                st.tuples(
                    st.sampled_from(texts), st.one_of(st.binary(), st.binary().map(zlib.compress))
                ).map(b"".join),
            ),
            st.tuples(
                st.sampled_from(
                    [b"IHDR", b"PLTE", b"IDAT", b"tRNS", b"gAMA", b"iCCP", b"acTL", b"fcTL"]
                ),
                st.binary(max_size=40),
            ),
        )
    )
    return hostile.chunk(kind, body)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(PICTURES), st.data())
def test_odd_metadata(blob, data):
    if blob.startswith(b"\x89PNG"):
        more = b"".join(data.draw(st.lists(png_metadata(), max_size=3)))
        blob = hostile.into_png(blob, more)
    else:
        more = b"".join(data.draw(st.lists(jpeg_metadata(), max_size=3)))
        blob = hostile.into_jpeg(blob, more)
    blob = bytearray(blob)
    for _ in range(data.draw(st.integers(0, 3))):
        position = data.draw(st.integers(8, min(len(blob), 400) - 1))
        blob[position] = data.draw(st.integers(0, 255))
    consume(bytes(blob))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=40))
def test_odd_npy_headers(header, rest):
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
    consume_tensor(head + header + rest)


@settings(max_examples=300, deadline=None)
@given(
    st.text("{}[]()':,.+-~ 0123456789<f4iaejnoldescrFTNtruplambd", max_size=120),
    st.binary(max_size=40),
)
def test_odd_npy_expressions(header, rest):
    text = header.encode()
    consume_tensor(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + rest)


def consume_tensor(blob: bytes) -> None:
    try:
        decode_sample(RawSample(0, "k", -1, "tensor", memoryview(blob)), None, LIMITS)
    except HapiError as error:
        assert error.status == 422 and " at 0x" not in error.detail


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
