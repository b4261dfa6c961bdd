from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from hapi_compute.train.config import TrainConfig, evaluation_transform, training_transform
from swift_hapi.protocol.errors import BadTransform

BASE = {"dataset": "swift://c/p", "model": "m", "weights": "w", "freeze_at": "f"}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dataset", "c/p"), ("test", "c/p"), ("model", ""), ("split", ""),
        ("epochs", 0), ("batch_size", 0), ("lr", -1), ("lr", float("nan")), ("val_split", 0.95),
        ("val_split", -0.1), ("momentum", 1), ("window", 0), ("prefetch", 0), ("concurrency", 0),
        ("micro_batch", 0), ("threads", 0), ("seed", -1), ("num_classes", 0),
        ("weight_decay", -1), ("optimizer", "lion"), ("schedule", "linear"),
        ("checkpoint_seconds", -1), ("accumulate", 0), ("warmup", -1), ("label_smoothing", 1),
        ("class_weights", "a,b"), ("device", "tpu"), ("precision", "bf16"), ("keep", "first"),
    ],
)  # fmt: skip
def test_ranges(option, value):
    with pytest.raises(ValueError, match=option if option not in ("dataset", "test") else "swift"):
        TrainConfig(**BASE | {option: value})


def test_contradictions():
    with pytest.raises(ValueError, match="resume needs out"):
        TrainConfig(**BASE, resume=True)
    with pytest.raises(ValueError, match="require_pushdown"):
        TrainConfig(**BASE, require_pushdown=True, split="raw")
    for option, value in (("patience", 2), ("keep", "best")):
        with pytest.raises(ValueError, match=f"{option}.*val_split"):
            TrainConfig(**BASE | {option: value})
    with pytest.raises(ValueError, match="tensorboard needs out"):
        TrainConfig(**BASE, tensorboard=True)


def test_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig(**BASE).lr = 1


def test_identity_is_of_what_decides_the_result():
    base = TrainConfig(**BASE)
    same = {"split": "raw", "threads": 1, "prefetch": 9, "micro_batch": 8, "out": "x"}
    assert TrainConfig(**BASE | same).digest() == base.digest()
    for option, value in {
        "lr": 0.5, "seed": 1, "batch_size": 8, "window": 2, "transform": "crop=8",
        "optimizer": "sgd", "dataset": "swift://c/q", "val_split": 0.5, "schedule": "cosine",
        "precision": "bfloat16",
        "augment": "hue=0.1",
    }.items():  # fmt: skip
        assert TrainConfig(**BASE | {option: value}).digest() != base.digest(), option


def test_more_epochs_are_the_same_run_unless_the_schedule_counts_them():
    def digest(**options):
        return TrainConfig(**BASE | options).digest()

    assert digest(epochs=3) == digest(epochs=5)
    assert digest(epochs=3, schedule="cosine") != digest(epochs=5, schedule="cosine")


def test_random_transforms_get_seed_and_epoch():
    spec = training_transform("rrc=32, hflip=0.5", 7, 2)
    assert (spec.seed, spec.epoch) == (7, 2)
    spec = training_transform("rrc=32, seed=1, epoch=0", 7, 2)
    assert (spec.seed, spec.epoch) == (1, 2)
    assert training_transform("resize=8x8", 7, 2).seed is None
    assert training_transform(None, 0, 0) is None


@pytest.mark.parametrize("bad", ["rcc=32", "rrc=32, hflip=2", "rrc=32, seed=x", "resize=256",
                                 "crop=8, hue=0.6", "crop=8, contrast=-1"])  # fmt: skip
def test_bad_transforms(bad):
    with pytest.raises(BadTransform):
        training_transform(bad, 0, 0)


def test_evaluation_is_never_random():
    spec = evaluation_transform("rrc=224, scale=(0.5 1), hflip=0.5, mean=(0.5)")
    assert str(spec) == "resize=256, crop=224, mean=(0.5)"
    assert str(evaluation_transform("resize=9, crop=8, hflip=0.5")) == "resize=9, crop=8"
    colours = "hflip=0.5, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, grayscale=0.2"
    for step in (*colours.split(", "), colours):
        assert training_transform(f"crop=8, {step}", 7, 2).seed == 7
        assert str(evaluation_transform(f"crop=8, {step}")) == "crop=8"
        with pytest.raises(BadTransform, match="random"):
            evaluation_transform("crop=8", f"{step}, crop=8, seed=1, epoch=1")
    assert str(evaluation_transform("crop=8")) == "crop=8"
    assert str(evaluation_transform("rrc=224", "crop=9")) == "crop=9"
    assert evaluation_transform(None) is None
    with pytest.raises(BadTransform, match="random"):
        evaluation_transform("crop=8", "hflip=0.5, crop=8, seed=1, epoch=1")


def test_options_do_not_need_torch():
    code = "import sys, hapi_compute.train.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
