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
    ("given", "canonical"),
    [
        ("brightness=0.4", "brightness=(0.6 1.4)"),
        ("contrast=2", "contrast=(0.0 3.0)"),
        ("saturation=(0.5 1)", "saturation=(0.5 1.0)"),
        ("hue=0.1", "hue=(-0.1 0.1)"),
        ("hue=(-0.5 0)", "hue=(-0.5 0.0)"),
        ("hue=-0", "hue=(0.0 0.0)"),
        ("hue=(-0 -0)", "hue=(0.0 0.0)"),
        ("grayscale=1", "grayscale=1.0"),
    ],
)
def test_a_number_and_its_range_are_the_same_colour_step(given, canonical):
    spec = parse_transform(f"seed=1, {given}, epoch=2, crop=8")
    assert spec.random
    assert str(spec) == f"crop=8, {canonical}, seed=1, epoch=2"
    assert parse_transform(str(spec)) == spec


def test_canonical_text_has_colours_after_hflip():
    spec = parse_transform(
        "mean=(0.5), grayscale=0.1, hue=0.1, saturation=0.2, contrast=0.3, brightness=0.4, "
        "interpolation=bicubic, hflip=0.5, rrc=8, seed=0, epoch=0"
    )
    keys = [part.partition("=")[0] for part in str(spec).split(", ")]
    assert keys == [
        "rrc", "hflip", "brightness", "contrast", "saturation", "hue", "grayscale",
        "interpolation", "mean", "seed", "epoch",
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["brightness", "contrast", "saturation", "hue", "grayscale"])
@pytest.mark.parametrize(
    "value",
    ["nan", "inf", "-inf", "(nan 1)", "(0 inf)", "-0.1", "101", "1e6", "1e999", "(0.4 0.3)",
     "(0.1)", "(0.1 0.2 0.3)", "()", "(-0.6 0.2)", "(0 100.5)", "x", "0.12345678901234567891"],
)  # fmt: skip
def test_refused_colours_name_the_key(key, value):
    with pytest.raises(BadTransform, match=f"^X-Hapi-Transform: {key}: ") as caught:
        parse_transform(f"crop=8, {key}={value}, seed=0, epoch=0")
    assert caught.value.status == 400


@pytest.mark.parametrize("step", ["brightness=0.4", "contrast=0", "saturation=(1 1)", "hue=0",
                                  "grayscale=0"])  # fmt: skip
def test_colours_need_seed_and_epoch(step):
    for rest in ("", ", seed=1", ", epoch=1"):
        with pytest.raises(BadTransform, match="seed, epoch: both are needed.*hue, grayscale"):
            parse_transform(f"crop=8, {step}{rest}")


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
        ("crop=8, hue=0.6, seed=0, epoch=0", "hue: .* -0.6 to 0.6; want -0.5 <= lo <= hi <= 0.5"),
        ("crop=8, contrast=100, seed=0, epoch=0", "contrast: .* want 0 <= lo <= hi <= 100"),
        ("crop=8, saturation=-1, seed=0, epoch=0", "saturation: '-1' is negative"),
        ("crop=8, grayscale=1.5, seed=0, epoch=0", "grayscale: must be a probability"),
        ("crop=8, hue=0.1, hue=0.1, seed=0, epoch=0", "hue: is given twice"),
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
