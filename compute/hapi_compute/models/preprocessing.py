"""The transform a model was trained with, in the grammar of ``X-Hapi-Transform``."""

from __future__ import annotations

import math

from torch import nn

from hapi_compute.models.architectures import TIMM, Architecture, weights_enum
from hapi_compute.models.weights import PackageWeights
from swift_hapi.protocol.transform import INTERPOLATIONS, TransformSpec


def _side(size: list[int] | tuple[int, ...]) -> int | tuple[int, int]:
    return size[0] if len(set(size)) == 1 else (size[0], size[1])


def _interpolation(name: str) -> str:
    return name if name in INTERPOLATIONS else "bicubic" if name == "lanczos" else "bilinear"


def transform_of(
    architecture: Architecture, module: nn.Module, weights: str | None
) -> TransformSpec:
    """What the library does to an image before the model in eval mode.

    :param weights: name of torchvision's weights, or None for those it has by default
    """
    if architecture.library == TIMM:
        return _timm_transform(module)
    preset = weights_enum(architecture, weights).transforms()
    resize, crop = _side(preset.resize_size), _side(preset.crop_size)
    own = getattr(module, "image_size", None)
    if isinstance(own, int) and own != crop:
        # The default weights are for another size than the architecture without them.
        resize, crop = round(own * 8 / 7), own
    mean, std = tuple(preset.mean), tuple(preset.std)
    if architecture.converting:
        mean = std = (0.5, 0.5, 0.5)
    return TransformSpec(
        resize=resize,
        crop=crop,
        interpolation=_interpolation(preset.interpolation.value),
        mean=mean,
        std=std,
    )


def _timm_transform(module: nn.Module) -> TransformSpec:
    from timm.data import resolve_model_data_config

    config = resolve_model_data_config(module)
    height, width = config["input_size"][1:]
    scaled = tuple(math.floor(side / config["crop_pct"]) for side in (height, width))
    squashed = config.get("crop_mode") == "squash"
    return TransformSpec(
        resize=scaled if squashed else min(scaled),
        crop=_side((height, width)),
        interpolation=_interpolation(config["interpolation"]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )


def package_transform(package: PackageWeights) -> TransformSpec:
    return TransformSpec(
        resize=package.resize,
        crop=package.crop,
        interpolation="bicubic",
        mean=(package.mean,) * 3,
        std=(package.std,) * 3,
    )
