"""One sample to a float32 array, the same on either tier.

Each step is what the step of that name does in ``torchvision.transforms`` on a PIL image,
bit for bit; Pillow is the reference decoder.
"""

from __future__ import annotations

import io
import struct

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from swift_hapi.protocol.errors import BadTransform, TooLarge, UndecodableSample
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import JITTER, Size, TransformSpec
from swift_hapi.samples.colour import jitter
from swift_hapi.samples.random_steps import SampleRandom, random_resized_box
from swift_hapi.samples.shard import RawSample
from swift_hapi.samples.tensor import decode_tensor

#: Pillow decoders a stored object may reach (MPO is a JPEG with further pictures behind it).
FORMATS = ("JPEG", "PNG")
_FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "nearest": Image.Resampling.NEAREST,
}
# What Pillow's decoders raise on damaged input.
_DAMAGE = (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, struct.error)


def decode_sample(
    sample: RawSample, spec: TransformSpec | None, limits: Limits, pixels: bool = False
) -> np.ndarray:
    """Decode and transform one sample.

    :param pixels: stop before the last step: uint8, of which :func:`normalised` makes the rest

    :returns: float32 [3, H, W] for images, channels last in memory; for tensors the array as
        stored
    :raises UndecodableSample: with members ``sample`` (index), ``key`` and ``reason``
    :raises TooLarge: more pixels than ``limits.max_pixels``, as stored or after a resize
    :raises BadTransform: an image without a transform, a tensor with one
    """
    if sample.error is not None:
        raise _undecodable(sample, sample.error)
    if sample.kind == "tensor":
        if spec is not None:
            raise BadTransform(
                f"X-Hapi-Transform: sample {sample.index} ({sample.key}) is a tensor; "
                "leave the header out"
            )
        try:
            return decode_tensor(sample.data)
        except ValueError as error:
            raise _undecodable(sample, str(error)) from None
    if spec is None:
        raise BadTransform("X-Hapi-Transform is missing: the samples are images")
    image = np.asarray(_transform(_open(sample, limits), spec, sample, limits))
    image = image.transpose(2, 0, 1)
    return image if pixels else normalised(image, spec)


def _undecodable(sample: RawSample, reason: str) -> UndecodableSample:
    return UndecodableSample(
        f"sample {sample.index} ({sample.key}): {reason}",
        sample=sample.index,
        key=sample.key,
        reason=reason,
    )


def _too_large(sample: RawSample, width: int, height: int, when: str, limits: Limits):
    return TooLarge(
        f"sample {sample.index} ({sample.key}): {width}x{height} {when} is more than "
        f"{limits.max_pixels} pixels",
        sample=sample.index,
        key=sample.key,
    )


def _open(sample: RawSample, limits: Limits) -> Image.Image:
    try:
        image = Image.open(io.BytesIO(sample.data), formats=FORMATS)
        if image.width * image.height > limits.max_pixels:
            raise _too_large(sample, image.width, image.height, "pixels", limits)
        image.load()
    except UnidentifiedImageError:
        # Pillow's own text holds the address of a buffer.
        raise _undecodable(sample, "is no readable JPEG or PNG") from None
    except Image.DecompressionBombError as error:
        raise TooLarge(f"sample {sample.index} ({sample.key}): {error}") from None
    except _DAMAGE as error:
        raise _undecodable(sample, str(error) or type(error).__name__) from None
    return image


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except _DAMAGE:
        return image  # A damaged EXIF block says nothing about the pixels.


def _transform(
    image: Image.Image, spec: TransformSpec, sample: RawSample, limits: Limits
) -> Image.Image:
    if spec.exif == "apply":
        image = _upright(image)
    image = image.convert("RGB")
    rng = SampleRandom(spec.seed, spec.epoch, sample.key) if spec.random else None
    if spec.resize is not None:
        width, height = _resized(image.width, image.height, spec.resize)
        # A shorter side of N makes a sliver's longer side explode.
        if width * height > limits.max_pixels:
            raise _too_large(sample, width, height, "after resize", limits)
        image = image.resize((width, height), _FILTERS[spec.interpolation])
    if spec.crop is not None:
        height, width = _pair(spec.crop)
        # Padding to the crop's size makes a sliver's other side explode.
        padded = max(width, image.width), max(height, image.height)
        if padded[0] * padded[1] > limits.max_pixels:
            raise _too_large(sample, *padded, "after padding for the crop", limits)
        image = _center_crop(image, (height, width))
    if spec.rrc is not None:
        left, top, width, height = random_resized_box(
            image.width, image.height, spec.scale or (0.08, 1.0), spec.ratio or (3 / 4, 4 / 3), rng
        )
        out_height, out_width = _pair(spec.rrc)
        image = image.crop((left, top, left + width, top + height)).resize(
            (out_width, out_height), _FILTERS[spec.interpolation]
        )
    if spec.hflip is not None and rng.uniform() < spec.hflip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    ranges = [getattr(spec, step) for step in JITTER]
    if any(ranges):
        image = jitter(image, ranges, rng)
    if spec.grayscale is not None and rng.uniform() < spec.grayscale:
        image = image.convert("L").convert("RGB")
    return image


def _pair(size: Size) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)


def _resized(width: int, height: int, size: Size) -> tuple[int, int]:
    if isinstance(size, tuple):
        return size[1], size[0]
    longer = int(size * max(width, height) / min(width, height))
    return (size, longer) if width <= height else (longer, size)


def _center_crop(image: Image.Image, size: tuple[int, int]) -> Image.Image:
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


def normalised(pixels: np.ndarray, spec: TransformSpec) -> np.ndarray:
    """uint8 [3, H, W] to float in [0, 1], ``mean`` and ``std``: float32 [3, H, W], channels last
    in memory, as pixels come from the decoder and as networks want them.

    The same divisions and subtractions as channel by channel, but along whole lines of pixels: for
    numpy three channels would make a loop of three.
    """
    channels, height, width = pixels.shape
    lines = pixels.transpose(1, 2, 0).reshape(height, width * channels)
    out = np.empty(lines.shape, dtype=np.float32)
    np.divide(lines, np.float32(255), out=out, dtype=np.float32)
    if spec.mean is not None:
        out -= _line(spec.mean, width, channels)
    if spec.std is not None:
        out /= _line(spec.std, width, channels)
    return out.reshape(height, width, channels).transpose(2, 0, 1)


def _line(values: tuple[float, ...], width: int, channels: int) -> np.ndarray:
    """One value for each channel, or one for all, for every pixel of a line."""
    return np.tile(np.broadcast_to(np.asarray(values, dtype=np.float32), channels), width)
