"""Random colours, on real photos."""

from __future__ import annotations

import hashlib
import io
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torchvision import transforms as T
from torchvision.transforms import functional as F

from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import JITTER, parse_transform
from swift_hapi.samples.colour import adjust, jitter
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.random_steps import SampleRandom
from swift_hapi.samples.shard import RawSample
from tests.unit.samples.builders import encode

REFERENCE = {
    "brightness": F.adjust_brightness,
    "contrast": F.adjust_contrast,
    "saturation": F.adjust_saturation,
    "hue": F.adjust_hue,
}
FULL = "brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1"


@pytest.fixture(scope="module", params=["flower.jpg", "china.jpg"])
def photo(request) -> Image.Image:
    return Image.fromarray(load_sample_image(request.param))


@pytest.fixture(scope="module")
def flower() -> bytes:
    return encode(Image.fromarray(load_sample_image("flower.jpg")), "PNG")


def decoded(data: bytes, text: str, key: str = "k") -> np.ndarray:
    sample = RawSample(0, key, -1, "image", memoryview(data))
    return decode_sample(sample, parse_transform(text), Limits())


def same(one: Image.Image, other: Image.Image) -> bool:
    return one.mode == other.mode and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("factor", [0.0, 0.3, 0.6000000000000001, 1.0, 1.4, 7.5, 100.0])
@pytest.mark.parametrize("step", ["brightness", "contrast", "saturation"])
def test_a_factor_does_what_it_does_in_torchvision(photo, step, factor):
    assert same(adjust(photo, step, factor), REFERENCE[step](photo, factor))


@pytest.mark.parametrize("factor", [-0.5, -0.1, -0.003, 0.0, 0.01, 0.25, 0.499999, 0.5])
def test_a_shift_of_the_hue_is_that_of_torchvision(photo, factor):
    assert same(adjust(photo, "hue", factor), F.adjust_hue(photo, factor))


def test_a_whole_transform_is_that_of_torchvision(flower):
    """With what is drawn given to torchvision, step by step."""
    text = f"resize=64, crop=64, hflip=0.5, {FULL}, grayscale=0.3, seed=5, epoch=1"
    photo = Image.open(io.BytesIO(flower))
    base = T.Compose([T.Resize(64), T.CenterCrop(64)])(photo)
    grey, orders = 0, set()
    for number in range(40):
        rng, image = SampleRandom(5, 1, f"k{number}"), base
        if rng.uniform() < 0.5:
            image = F.hflip(image)
        order = rng.permutation(4)
        orders.add(tuple(order))
        ranges = [(0.6, 1.4)] * 3 + [(-0.1, 0.1)]
        factors = [rng.uniform(*limits) for limits in ranges]
        for step in order:
            image = REFERENCE[JITTER[step]](image, factors[step])
        if rng.uniform() < 0.3:
            image = F.rgb_to_grayscale(image, num_output_channels=3)
            grey += 1
        ours = torch.from_numpy(decoded(flower, text, f"k{number}"))
        assert torch.equal(ours, F.to_tensor(image)), number
    assert 4 < grey < 20 and len(orders) > 12


def test_the_order_of_the_four_matters_and_all_orders_come(flower):
    counts = Counter(tuple(SampleRandom(0, 0, str(n)).permutation(4)) for n in range(2400))
    assert len(counts) == 24 and min(counts.values()) > 60 and max(counts.values()) < 150
    made = {
        decoded(flower, f"crop=32, {FULL}, seed=1, epoch=0", str(n)).tobytes() for n in range(9)
    }
    assert len(made) == 9


def test_a_step_that_is_left_out_leaves_the_others_as_they_are():
    """Only brightness and saturation are asked for, and their factors stay what they were."""

    image, rng = Image.new("RGB", (2, 2), (200, 100, 50)), SampleRandom(3, 1, "a")
    part = jitter(image, [(0.6, 1.4), None, (0.5, 1.5), None], rng)
    again = SampleRandom(3, 1, "a")
    order = again.permutation(4)
    brightness, _ = again.uniform(0.6, 1.4), again.uniform()
    saturation, _ = again.uniform(0.5, 1.5), again.uniform()
    expected = image
    for step in order:
        if JITTER[step] == "brightness":
            expected = F.adjust_brightness(expected, brightness)
        if JITTER[step] == "saturation":
            expected = F.adjust_saturation(expected, saturation)
    assert same(part, expected) and not same(part, image)
    assert rng.uniform() == again.uniform()  # As many numbers as for all four.


def test_neutral_ranges_change_no_pixel(flower):
    plain = decoded(flower, "crop=64")
    neutral = "brightness=0, contrast=(1 1), saturation=0, hue=0, grayscale=0"
    assert np.array_equal(plain, decoded(flower, f"crop=64, {neutral}, seed=1, epoch=0"))


def test_grayscale_keeps_three_equal_channels(flower):
    grey = decoded(flower, "crop=32x48, grayscale=1, seed=1, epoch=0")
    assert grey.shape == (3, 32, 48)
    assert np.array_equal(grey[0], grey[1]) and np.array_equal(grey[0], grey[2])
    assert not np.array_equal(decoded(flower, "crop=32x48")[0], decoded(flower, "crop=32x48")[1])


def test_colours_depend_on_seed_epoch_and_key_alone(flower):
    text = f"crop=32, {FULL}, seed={{}}, epoch={{}}"
    first = decoded(flower, text.format(1, 0), "a")
    assert np.array_equal(first, decoded(flower, text.format(1, 0), "a"))
    for seed, epoch, key in [(2, 0, "a"), (1, 1, "a"), (1, 0, "b")]:
        assert not np.array_equal(first, decoded(flower, text.format(seed, epoch), key))


@pytest.mark.parametrize("steps", ["rrc=32", "crop=32, hflip=0.5", "rrc=32, hflip=0.5"])
def test_colours_are_drawn_after_everything_else(flower, steps):
    """Where and whether mirrored: what it is without colours."""
    for key in "abcdefgh":
        plain = decoded(flower, f"{steps}, seed=4, epoch=2", key)
        grey = decoded(flower, f"{steps}, grayscale=1, seed=4, epoch=2", key)
        bright = decoded(flower, f"{steps}, brightness=(1.5 1.5), seed=4, epoch=2", key)
        image = Image.fromarray((plain.transpose(1, 2, 0) * 255).round().astype(np.uint8))
        assert torch.equal(
            torch.from_numpy(grey), F.to_tensor(F.rgb_to_grayscale(image, num_output_channels=3))
        )
        assert torch.equal(
            torch.from_numpy(bright), F.to_tensor(F.adjust_brightness(image, 1.5))
        )


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ("rrc=32, hflip=0.5, mean=(0.5), std=(0.25), seed=1, epoch=2", "ae5708a7fafe4cd4"),
        ("resize=48, crop=32, hflip=0.5, seed=7, epoch=0", "021c4432c304441d"),
        ("rrc=24x40, scale=(0.3 0.9), ratio=(0.5 2.0), seed=9, epoch=3", "0a8d85a33478c9c7"),
    ],
)
def test_transforms_without_colours_are_what_they_always_were(text, digest):
    """Canonical text and pixels, written down before there were colours."""
    y, x = np.mgrid[0:90, 0:120]
    pixels = np.stack([x * 2, y * 2, (x * y) % 256], axis=-1).astype(np.uint8)
    data, state = encode(Image.fromarray(pixels), "PNG"), hashlib.sha256()
    for key in "abcd":
        state.update(np.ascontiguousarray(decoded(data, text, key)).tobytes())
    assert str(parse_transform(text)) == text
    assert state.hexdigest()[:16] == digest


def test_what_is_drawn_is_pinned():
    # A change here changes everybody's training runs: raise the numerics version with it.
    rng = SampleRandom(7, 3, "n01440764/1")
    assert (rng.permutation(4), rng.uniform(0.6, 1.4)) == ([3, 0, 1, 2], 0.746508672127033)
