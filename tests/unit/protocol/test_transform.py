import pytest

from swift_hapi.protocol.errors import BadTransform
from swift_hapi.protocol.transform import parse_transform


def test_reads_the_documented_example():
    spec = parse_transform(
        "resize=256, crop=224, mean=(0.485 0.456 0.406), std=(0.229 0.224 0.225)"
    )
    assert spec.resize == 256 and spec.crop == 224 and spec.size == (224, 224)
    assert spec.mean == (0.485, 0.456, 0.406)
    assert not spec.random


def test_order_of_keys_does_not_matter_and_text_is_canonical():
    one = parse_transform("std=(2),rrc=96x64,seed=1,hflip=5e-1,epoch=0")
    two = parse_transform(" hflip=0.50 , rrc=96x64, epoch=0, seed=1, std=(2.0)")
    assert one == two and str(one) == str(two)
    assert one.size == (96, 64)


def test_seventeen_digits_survive():
    value = 0.12345678901234566
    assert parse_transform(f"crop=8, mean=({value!r})").mean == (value,)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "expected key=value"),
        ("crop=8,", "expected key=value"),
        ("crop=8 resize=9", "expected"),
        ("blur=3, crop=8", "blur"),
        ("crop=8, crop=9", "crop: is given twice"),
        ("resize=20", "fixes the size"),
        ("crop=0", "crop"),
        ("crop=5000", "crop"),
        ("crop=8, rrc=8, seed=0, epoch=0", "only one"),
        ("crop=8, hflip=0.5", "seed, epoch"),
        ("rrc=8, seed=3", "seed, epoch"),
        ("crop=8, seed=3, epoch=1", "seed, epoch"),
        ("crop=8, scale=(0.1 1)", "scale"),
        ("rrc=8, seed=0, epoch=0, scale=(0 1)", "scale"),
        ("rrc=8, seed=0, epoch=0, ratio=(2 1)", "ratio"),
        ("crop=8, hflip=1.5, seed=0, epoch=0", "hflip"),
        ("crop=8, std=(0 1 1)", "std"),
        ("crop=8, mean=(1 2)", "mean"),
        ("crop=8, mean=0.5", "mean"),
        ("crop=8, mean=(0.123456789012345678 1 1)", "17"),
        ("crop=8, mean=(nan 1 1)", "mean"),
        ("crop=8, interpolation=lanczos", "interpolation"),
        ("crop=8, exif=maybe", "exif"),
        ("rrc=8, seed=9223372036854775808, epoch=0", "seed"),
        ("crop=(8 8)", "crop"),
        ("crop=8\r\nX-Evil: 1", "expected"),
    ],
)
def test_refusals_name_the_key(text, names):
    with pytest.raises(BadTransform, match=names):
        parse_transform(text)
