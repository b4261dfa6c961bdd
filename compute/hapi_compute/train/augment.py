"""Random steps on top of a transform, for training alone."""

from __future__ import annotations

from dataclasses import replace

from hapi_compute.train.config import TrainConfig, evaluation_transform, training_transform
from swift_hapi.protocol.errors import BadTransform
from swift_hapi.protocol.headers import TRANSFORM
from swift_hapi.protocol.transform import RANDOM_STEPS, TransformSpec, parse_pairs

#: keys that ``augment`` may have
KEYS = (*RANDOM_STEPS, "scale", "ratio")


def augmented(config: TrainConfig) -> TrainConfig:
    """``config`` with ``augment`` made part of ``transform``; validation and test go on with the
    transform as it was, less its own random steps.

    :param config: whose ``transform`` is settled; None: samples are tensors
    :raises ValueError: ``augment`` is not in the grammar, or does not suit the transform
    :raises BadTransform: ``transform`` is not in the grammar
    """
    if config.augment is None:
        return config
    if config.transform is None:
        raise ValueError(f"augment={config.augment!r}: the samples are tensors, not images")
    plain = evaluation_transform(config.transform)
    base = training_transform(config.transform, config.seed, 0)
    try:
        spec = _with_steps(base, config.augment, config.seed)
    except BadTransform as error:
        why = error.detail.removeprefix(f"{TRANSFORM}: ")
        raise ValueError(f"augment={config.augment!r}: {why}") from None
    return replace(
        config,
        transform=str(spec),
        augment=None,
        test_transform=config.test_transform or str(plain),
    )


def _with_steps(base: TransformSpec, text: str, seed: int) -> TransformSpec:
    """A random resized crop takes the place of resize and crop; other steps are added, or go
    before what ``base`` says of them."""
    steps = parse_pairs(text)
    for key in steps:
        if key not in KEYS:
            raise BadTransform(f"{key}: augments nothing; what does is {', '.join(KEYS)}")
    if "rrc" in steps:
        steps = {"resize": None, "crop": None, **steps}
    spec = replace(base, **steps, seed=seed if base.seed is None else base.seed, epoch=0)
    if spec.size != base.size:
        raise BadTransform(
            f"rrc: makes {_by(spec.size)} of a picture, the transform {_by(base.size)}; "
            "both must be equal"
        )
    return spec


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
