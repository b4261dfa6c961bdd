"""Sizes of a picture through the steps of a transform, known before its pixels are."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from swift_hapi.protocol.transform import Size, TransformSpec
from swift_hapi.samples.random_steps import SampleRandom, random_resized_box


@dataclass(frozen=True)
class Plan:
    """What becomes of one picture.

    :param steps: (width, height, when) of every picture on the way
    :param resized: (width, height) of the first resize, if there is one
    :param box: (left, top, width, height) of the random crop, if there is one
    :param rng: for the random steps that follow
    :param width: of the result, as ``height``
    """

    steps: tuple[tuple[int, int, str], ...]
    resized: tuple[int, int] | None
    box: tuple[int, int, int, int] | None
    rng: SampleRandom | None
    width: int
    height: int


def planned(width: int, height: int, spec: TransformSpec, key: str) -> Plan:
    """The plan for the sample ``key``, a picture of ``width`` and ``height`` when upright."""
    steps: list[tuple[int, int, str]] = []
    resized = box = None
    rng = SampleRandom(spec.seed, spec.epoch, key) if spec.random else None
    if spec.resize is not None:
        resized = _resized(width, height, spec.resize)
        # A shorter side of N makes a sliver's longer side explode.
        steps += [(*resized, "after resize"), _between(resized[0], height)]
        width, height = resized
    if spec.crop is not None:
        out_height, out_width = pair(spec.crop)
        # Padding to the crop's size makes a sliver's other side explode.
        padded = max(out_width, width), max(out_height, height)
        steps.append((*padded, "after padding for the crop"))
        width, height = out_width, out_height
    if spec.rrc is not None:
        box = random_resized_box(
            width, height, spec.scale or (0.08, 1.0), spec.ratio or (3 / 4, 4 / 3), rng
        )
        out_height, out_width = pair(spec.rrc)
        steps.append(_between(out_width, box[3]))
        width, height = out_width, out_height
    steps.append((width, height, "after the last step"))
    return Plan(tuple(steps), resized, box, rng, width, height)


def _between(width: int, height: int) -> tuple[int, int, str]:
    """Pillow resizes along lines first, and then along columns."""
    return width, height, "in between the two steps of a resize"


def pair(size: Size) -> tuple[int, int]:
    """(height, width)"""
    return size if isinstance(size, tuple) else (size, size)


def _resized(width: int, height: int, size: Size) -> tuple[int, int]:
    if isinstance(size, tuple):
        return size[1], size[0]
    longer = int(size * max(width, height) / min(width, height))
    return (size, longer) if width <= height else (longer, size)


def center_crop(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """(height, width) of the middle."""
    height, width = size
    if image.width < width or image.height < height:
        # As torchvision: black borders, the odd pixel on the right and at the bottom.
        padded = Image.new("RGB", (max(width, image.width), max(height, image.height)))
        left = max(0, (width - image.width) // 2)
        top = max(0, (height - image.height) // 2)
        padded.paste(image, (left, top))
        image = padded
    # round() is to even here and in torchvision.
    top = round((image.height - height) / 2.0)
    left = round((image.width - width) / 2.0)
    return image.crop((left, top, left + width, top + height))
