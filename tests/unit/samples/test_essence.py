"""What hostile files cost, and that others lose nothing."""

import io
import itertools
import struct
import tracemalloc

import numpy as np
import pytest
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from swift_hapi.protocol.errors import TooLarge, UndecodableSample
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import parse_transform
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.essence import (
    MAX_CHUNKS,
    MAX_SCANS,
    MAX_SEGMENTS,
    essence,
    more_scans_than,
)
from swift_hapi.samples.shard import RawSample
from tests.unit.samples import hostile
from tests.unit.samples.builders import encode, picture

LIMITS = Limits()
KEEP = parse_transform("crop=48")
XMP = b'<x tiff:Orientation="6"/>'


def decoded(data: bytes, spec=KEEP, limits=LIMITS, **more) -> np.ndarray:
    view = memoryview(data)
    return decode_sample(RawSample(0, "k", -1, "image", view), spec, limits, True, **more)


def pillows(data: bytes, turn: bool = True) -> np.ndarray:
    """What Pillow makes of the whole file."""
    image = Image.open(io.BytesIO(data))
    image = (ImageOps.exif_transpose(image) if turn else image).convert("RGB")
    return np.asarray(image).transpose(2, 0, 1)


def all_of(data: bytes, text: str = "") -> np.ndarray:
    size = pillows(data, turn=not text).shape[1:]
    return decoded(data, parse_transform(f"crop={size[0]}x{size[1]}" + text))


def with_exif(value: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = value
    exif[0x010F] = "a maker"
    return exif


def orientations():
    for value, (format_, more) in itertools.product(
        range(10), [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {})]
    ):
        yield encode(picture(31, 17), format_, exif=with_exif(value), **more)
    yield encode(picture(31, 17), xmp=XMP)
    yield encode(picture(31, 17), xmp=XMP, exif=with_exif(3))
    jpeg = encode(picture(31, 17))
    for order in "<>":
        block = b"Exif\0\0" + hostile.upright(8, order)
        yield hostile.into_jpeg(jpeg, hostile.segment(0xE1, block))
    block = with_exif(8).tobytes()
    for packed in (False, True):
        texts = [
            ("XML:com.adobe.xmp", "<tiff:Orientation>5</tiff:Orientation>", "add_itxt"),
            ("Raw profile type exif", f"\nexif\n{len(block):8}\n{block.hex()}\n", "add_text"),
        ]
        for key, text, add in texts:
            info = PngInfo()
            getattr(info, add)(key, text, zip=packed)
            yield encode(picture(31, 17), "PNG", pnginfo=info)


@pytest.mark.parametrize("data", list(orientations()))
def test_pictures_are_turned_as_pillow_turns_them(data):
    assert np.array_equal(all_of(data), pillows(data))
    assert np.array_equal(all_of(data, ", exif=ignore"), pillows(data, turn=False))


def kinds():
    image = picture(61, 43)
    for mode in ("L", "CMYK"):
        yield mode, encode(image.convert(mode))
    for mode in ("1", "L", "LA", "P", "RGBA"):
        yield mode, encode(image.convert(mode), "PNG")
    deep = np.arange(1200, dtype=np.uint16).reshape(30, 40)
    yield "16 bits", encode(Image.fromarray(deep), "PNG")
    yield "4:4:4", encode(image, subsampling=0)
    yield "profile in two segments", encode(image, icc_profile=bytes(100_000))
    yield "comment", encode(image, comment=b"\xff\xda" * 200)
    yield "restarts", encode(image, restart_marker_blocks=1)
    yield "RGB", encode(image, keep_rgb=True)
    yield "MPO", encode(image, "MPO", save_all=True, append_images=[image] * 2)
    yield "film behind it", encode(image, progressive=True) + b"\xff\xda" * 1000
    yield "transparent", encode(image, "PNG", transparency=(1, 2, 3))
    yield "transparent palette", encode(image.convert("P"), "PNG", transparency=bytes(range(99)))
    yield "animated", encode(image, "PNG", save_all=True, append_images=[ImageOps.invert(image)])
    png = encode(image, "PNG")
    yield "no end", png[:-12]
    at = png.index(b"IDAT") - 4
    pixels = png[at + 8 : -16]
    parts = [hostile.chunk(b"IDAT", pixels[i : i + 7]) for i in range(0, len(pixels), 7)]
    yield "many parts", png[:at] + b"".join(parts) + png[-12:]


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in kinds()])
def test_nothing_that_pixels_depend_on_is_left_out(data):
    assert np.array_equal(all_of(data), pillows(data))


def test_scans_are_bounded_and_by_the_size_too():
    """8000 scans that code nothing are 16 seconds of a picture of 8000 x 8000."""
    bomb = hostile.scans(640, 640, MAX_SCANS + 1)
    with pytest.raises(UndecodableSample, match="640x640 pixels in more than 100 scans"):
        decoded(bomb)
    assert decoded(hostile.scans(640, 640, MAX_SCANS)).shape == (3, 48, 48)
    large = hostile.scans(640, 640, 40)
    decoded(large)
    with pytest.raises(UndecodableSample, match="in more than 35 scans"):
        decoded(large, limits=Limits(max_pixels=640 * 700))


def test_scans_are_told_from_what_looks_like_one():
    ten = encode(picture(64, 64), progressive=True)
    assert more_scans_than(ten, 9) and not more_scans_than(ten, 10)
    # In metadata between scans, and behind the end.
    at = ten.rindex(b"\xff\xda")
    look = ten[:at] + hostile.segment(0xE5, b"\xff\xda" * 500) + ten[at:] + b"\xff\xda" * 500
    assert more_scans_than(look, 9) and not more_scans_than(look, 10)
    assert np.array_equal(decoded(look), decoded(ten))
    # Filling, a restart mark and a mark that libjpeg passes over hide none.
    hidden = ten[:at] + b"\xff\xd0\xff\xff" + ten[at:]
    assert more_scans_than(hidden, 9) and not more_scans_than(hidden, 10)


def peak(data: bytes) -> int:
    view = memoryview(data)
    tracemalloc.start()
    try:
        decode_sample(RawSample(0, "k", -1, "image", view), KEEP, Limits(), True)
    except UndecodableSample:
        pass
    finally:
        made = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return made


def bulky():
    jpeg, png = encode(picture(64, 64)), encode(picture(64, 64), "PNG")
    many = MAX_SEGMENTS - 100
    yield "empty segments", hostile.into_jpeg(jpeg, hostile.segment(0xE2) * many)
    yield "profiles", hostile.into_jpeg(jpeg, hostile.segment(0xE2, b"ICC_PROFILE\0\1\1a") * many)
    yield "EXIF", hostile.into_jpeg(jpeg, hostile.segment(0xE1, b"Exif\0\0" + bytes(800)) * many)
    yield "resources", hostile.into_jpeg(
        jpeg, hostile.segment(0xED, b"Photoshop 3.0\0" + b"8BIM\4\4\0\0\0\0\0\0" * 5000) * 20
    )
    claims = [(tag, 1, 60_000, struct.pack("<I", 8)) for tag in range(1, 5000)]
    directory = b"Exif\0\0" + hostile.tiff(*claims)
    yield "a directory of 300 MB", hostile.into_jpeg(jpeg, hostile.segment(0xE1, directory))
    yield "the same as MPF", hostile.into_jpeg(
        jpeg, hostile.segment(0xE2, b"MPF\0" + hostile.tiff(*claims))
    )
    yield "the same in a PNG", hostile.into_png(png, hostile.chunk(b"eXIf", directory[6:]))
    yield "texts", hostile.into_png(
        png, b"".join(hostile.chunk(b"tEXt", b"%d\0" % i) for i in range(20_000))
    )


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in bulky()])
def test_metadata_take_no_memory(data):
    """Beside one or two copies of the file."""
    assert peak(data) < 2 * len(data) + (1 << 20)
    assert decoded(data).shape == (3, 48, 48)


def test_parts_are_bounded():
    jpeg, png = encode(picture(64, 64)), encode(picture(64, 64), "PNG")
    with pytest.raises(UndecodableSample, match="more than 4096 segments"):
        decoded(hostile.into_jpeg(jpeg, hostile.segment(0xEF) * MAX_SEGMENTS))
    with pytest.raises(UndecodableSample, match="more than 131072 chunks"):
        decoded(hostile.into_png(png, hostile.chunk(b"aaAA") * MAX_CHUNKS))


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"II",
        b"II*\0\xff\xff\xff\xff",
        b"MM\0*\0\0\0\x08\xff\xff",
        hostile.tiff((0x0112, 3, 2, b"\6\0\6\0")),
        hostile.tiff((0x0112, 12, 1, b"\xff\xff\xff\xff"), (0x0112, 99, 1, b"abcd")),
        hostile.tiff((0x8769, 4, 1, b"\x08\0\0\0"), (0x010F, 2, 2**31, b"\0\0\0\0")),
        hostile.tiff((0x0112, 7, 1, b"\6\0\0\0")),
    ],
)
def test_damaged_exif_means_upright_as_stored(block):
    plain = encode(picture(31, 17))
    jpeg = hostile.into_jpeg(plain, hostile.segment(0xE1, b"Exif\0\0" + block))
    assert np.array_equal(decoded(jpeg), decoded(plain))
    plain = encode(picture(31, 17), "PNG")
    png = hostile.into_png(plain, hostile.chunk(b"eXIf", block))
    assert np.array_equal(decoded(png), decoded(plain))


@pytest.mark.parametrize(
    "text", ["resize=8x4096", "rrc=8x4096, ratio=(0.01 0.01), seed=1, epoch=1"]
)
def test_a_resize_has_no_larger_picture_in_between(text):
    sliver = encode(Image.new("RGB", (10, 20_000)), "PNG")
    with pytest.raises(TooLarge, match="in between the two steps of a resize"):
        decoded(sliver, parse_transform(text), Limits(max_pixels=1_000_000))


def test_sides_are_bounded():
    line = encode(Image.new("L", ((1 << 20) + 1, 1)), "PNG")
    with pytest.raises(TooLarge, match="a side of more than 1048576") as caught:
        decoded(line)
    assert caught.value.members == {"sample": 0, "key": "k"}


def test_layers_are_recognised():
    """Coefficients of all of the picture are held when scans are more than one."""
    image = picture(64, 64)
    assert not essence(memoryview(encode(image))).layered
    assert essence(memoryview(encode(image, progressive=True))).layered
    assert not essence(memoryview(encode(image, "PNG"))).layered


class Asked:
    """Admits all, and remembers what for."""

    def __init__(self):
        self.nbytes, self.inside = [], False

    def __call__(self, nbytes):
        self.nbytes.append(nbytes)
        return self

    def __enter__(self):
        self.inside = True

    def __exit__(self, *error):
        self.inside = False


@pytest.mark.parametrize(
    "data, each",
    [
        (encode(picture(400, 300)), 8),
        (encode(picture(400, 300), progressive=True), 12),
        (encode(picture(400, 300).convert("RGBA"), "PNG", exif=with_exif(6)), 8),
    ],
)
def test_memory_for_pixels_is_asked_for_before_they_are_decoded(data, each):
    asked = Asked()
    decoded(data, parse_transform("resize=20x10"), admit=asked)
    upright = pillows(data).shape[1]
    # The picture, three others on the way, and the result.
    assert asked.nbytes == [each * 400 * 300 + 4 * (200 + 10 * upright + 200) + 15 * 200]
    assert not asked.inside


@pytest.mark.parametrize(
    "odd",
    [
        (0x0131, 11, 1, b"\0\0\0\x40"),  # a name that is a float
        (0x011B, 2, 2, b"ab\0\0"),  # a resolution that is a text
        (0x8825, 16, 1, b"\x32\0\0\0"),  # a place beyond all that can be
        (0x02BC, 8, 1, b"\0\0\0\0"),  # a document that is a number
    ],
)
def test_odd_entries_do_not_keep_a_picture_from_being_turned(odd):
    turn = (0x0112, 3, 1, b"\6\0\0\0")
    plain = encode(picture(31, 17))
    block = hostile.tiff(turn, odd) + bytes(range(200, 240))
    jpeg = hostile.into_jpeg(plain, hostile.segment(0xE1, b"Exif\0\0" + block))
    upright = np.rot90(pillows(plain), -1, (1, 2))
    assert np.array_equal(decoded(jpeg, parse_transform("crop=31x17")), upright)
