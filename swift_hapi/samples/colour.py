"""Random colours of one picture: ``torchvision.transforms.ColorJitter`` on a PIL image.

For given factors the result is that of ``torchvision.transforms.functional`` bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageEnhance

from swift_hapi.protocol.transform import JITTER
from swift_hapi.samples.random_steps import SampleRandom

_ENHANCERS = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "saturation": ImageEnhance.Color,
}


def jitter(
    image: Image.Image, ranges: Sequence[tuple[float, float] | None], rng: SampleRandom
) -> Image.Image:
    """``image`` (RGB) with its colours changed.

    The order is drawn first, then a factor for each of :data:`JITTER`, asked for or not: to leave
    one of them out does not change what is drawn for the others.

    :param ranges: (low, high) of each of :data:`JITTER`; None: not that one
    """
    order = rng.permutation(len(JITTER))
    factors = [rng.uniform(*(limits or (0.0, 0.0))) for limits in ranges]
    for step in order:
        limits = ranges[step]
        neutral = 0.0 if JITTER[step] == "hue" else 1.0
        # A shift of the hue by nothing would still go through HSV, which rounds.
        if limits is not None and tuple(limits) != (neutral, neutral):
            image = adjust(image, JITTER[step], factors[step])
    return image


def adjust(image: Image.Image, step: str, factor: float) -> Image.Image:
    """One of :data:`JITTER` by ``factor``: of ``hue`` a part of the circle from -0.5 to 0.5, of
    the others 1 changes nothing and 0 leaves black, grey, or no colour."""
    if step != "hue":
        return _ENHANCERS[step](image).enhance(factor)
    hue, saturation, value = image.convert("HSV").split()
    shift = int(factor * 255)
    hue = hue.point([(level + shift) % 256 for level in range(256)])
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")
