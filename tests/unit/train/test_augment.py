from __future__ import annotations

import pytest

from hapi_compute.train.augment import augmented
from hapi_compute.train.config import TrainConfig, evaluation_transform, training_transform

PLAIN = "resize=256, crop=224, mean=(0.5), std=(0.25)"


def config(augment: str | None, transform: str | None = PLAIN, **options) -> TrainConfig:
    return TrainConfig(
        "swift://c/p", "m", "w", "f", transform=transform, augment=augment, seed=7, **options
    )


def evaluated(config: TrainConfig) -> str:
    return str(evaluation_transform(config.transform, config.test_transform))


def test_steps_are_added_for_training_alone():
    made = augmented(config("hue=0.1, hflip=0.5, grayscale=0.2"))
    assert made.augment is None
    assert str(training_transform(made.transform, made.seed, 3)) == (
        "resize=256, crop=224, hflip=0.5, hue=(-0.1 0.1), grayscale=0.2, mean=(0.5), std=(0.25), "
        "seed=7, epoch=3"
    )
    assert evaluated(made) == PLAIN


def test_a_random_crop_takes_the_place_of_resize_and_crop():
    made = augmented(config("rrc=224, scale=(0.3 1), ratio=(1 1)"))
    spec = training_transform(made.transform, 7, 0)
    assert (spec.resize, spec.crop, spec.rrc, spec.size) == (None, None, 224, (224, 224))
    assert (spec.scale, spec.ratio, spec.mean) == ((0.3, 1.0), (1.0, 1.0), (0.5,))
    # What it was trained at, not what would be guessed from the random crop.
    assert evaluated(made) == PLAIN


def test_steps_go_before_those_of_the_transform():
    random = "rrc=64, scale=(0.2 0.9), hflip=0.5, hue=0.1, seed=11, epoch=0"
    made = augmented(config("hflip=0.1, contrast=0.3", random))
    assert str(training_transform(made.transform, 7, 2)) == (
        "rrc=64, scale=(0.2 0.9), hflip=0.1, contrast=(0.7 1.3), hue=(-0.1 0.1), seed=11, epoch=2"
    )
    assert evaluated(made) == "resize=73, crop=64" == str(evaluation_transform(random))


def test_a_transform_for_tests_stays():
    assert evaluated(augmented(config("hue=0.1", test_transform="resize=224x224"))) == (
        "resize=224x224"
    )


def test_nothing_is_changed_where_nothing_is_added():
    plain = config(None)
    assert augmented(plain) is plain
    assert "augment" not in plain.identity()


def test_equal_steps_make_equal_runs():
    def identity(text):
        return augmented(config(text)).identity()

    assert identity("hue=0.1, hflip=0.5") == identity("hflip=5e-1, hue=(-0.1 0.1)")
    assert identity("hue=0.1") != identity("hue=0.2")
    assert identity("hue=0.1") != config(None).identity()


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ("hue=0.6", "hue: the factors are from -0.6 to 0.6; want -0.5 <= lo <= hi <= 0.5"),
        ("brightness=nan", "brightness: 'nan' is not a number"),
        ("contrast=-1", "contrast: '-1' is negative"),
        ("grayscale=2", "grayscale: must be a probability"),
        ("rrc=32", "rrc: makes 32x32 of a picture, the transform 224x224; both must be equal"),
        ("crop=224", "crop: augments nothing; what does is rrc, hflip, brightness"),
        ("mean=(0)", "mean: augments nothing"),
        ("seed=4", "seed: augments nothing"),
        ("scale=(0.1 1)", "scale, ratio: have a meaning only with rrc"),
        ("blur=1", "blur: is no step"),
        ("hue=0.1, hue=0.1", "hue: is given twice"),
        ("", "expected key=value at ''"),
    ],
)
def test_what_is_wrong_is_said_in_terms_of_the_option(steps, why):
    with pytest.raises(ValueError) as caught:
        augmented(config(steps))
    assert str(caught.value).startswith(f"augment={steps!r}: {why}")


def test_tensors_have_no_colours():
    with pytest.raises(ValueError, match="augment='hue=0.1': the samples are tensors"):
        augmented(config("hue=0.1", None))
