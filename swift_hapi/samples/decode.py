"""One sample to a float32 array, the same on either tier.

Each step is what the step of that name does in ``torchvision.transforms`` on a PIL image,
bit for bit; Pillow is the reference decoder.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import numpy as np
from PIL import Image, UnidentifiedImageError

from swift_hapi.protocol.errors import BadTransform, HapiError, TooLarge, UndecodableSample
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import JITTER, TransformSpec
from swift_hapi.samples.colour import jitter
from swift_hapi.samples.essence import MAX_SCANS, Essence, essence, more_scans_than
from swift_hapi.samples.geometry import Plan, center_crop, pair, planned
from swift_hapi.samples.reason import reason
from swift_hapi.samples.shard import RawSample
from swift_hapi.samples.tensor import decode_tensor

_FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "nearest": Image.Resampling.NEAREST,
}
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
#: a larger side has more coefficients of a resize than pixels
_MAX_SIDE = 1 << 20
#: Scans of a picture of ``max_pixels``. Every scan goes over all of the picture.
_MAX_WORK = 32
#: Bytes of a pixel: Pillow's own are 4, two of them while a picture is turned or converted;
#: coefficients are 2 in each of four colours.
_PIXEL, _TWICE, _LAYERED = 4, 8, 12
_FLOATS = 15  #: float32 and uint8 in three channels

#: holds so many bytes of pixels for the length of a block
Admit = Callable[[int], AbstractContextManager]


def _always(nbytes: int) -> AbstractContextManager:
    return contextlib.nullcontext()


def decode_sample(
    sample: RawSample,
    spec: TransformSpec | None,
    limits: Limits,
    pixels: bool = False,
    admit: Admit = _always,
) -> np.ndarray:
    """Decode and transform one sample.

    :param pixels: stop before the last step: uint8, of which :func:`normalised` makes the rest
    :param admit: asked once the size of an image is known and before its pixels are decoded, with
        the bytes that they and all steps take at most

    :returns: float32 [3, H, W] for images, channels last in memory; for tensors the array as
        stored
    :raises UndecodableSample: with members ``sample`` (index), ``key`` and ``reason``
    :raises TooLarge: more pixels than ``limits.max_pixels``, as stored or in any step
    :raises BadTransform: an image without a transform, a tensor with one
    """
    if sample.error is not None:
        raise undecodable(sample, sample.error)
    if sample.kind == "tensor":
        if spec is not None:
            raise BadTransform(
                f"X-Hapi-Transform: sample {sample.index} ({sample.key}) is a tensor; "
                "leave the header out"
            )
        try:
            return decode_tensor(sample.data)
        except ValueError as error:
            raise undecodable(sample, reason(error)) from None
    if spec is None:
        raise BadTransform("X-Hapi-Transform is missing: the samples are images")
    return _decode_image(sample, spec, limits, pixels, admit)


def _decode_image(
    sample: RawSample, spec: TransformSpec, limits: Limits, pixels: bool, admit: Admit
) -> np.ndarray:
    try:
        found = essence(sample.data)
    except ValueError as error:
        raise undecodable(sample, str(error)) from None
    image = _opened(found, sample, limits)
    turn = _TURNS.get(found.orientation) if spec.exif == "apply" else None
    width, height = image.size if found.orientation < 5 or turn is None else image.size[::-1]
    plan = planned(width, height, spec, sample.key)
    for wide, high, when in plan.steps:
        if wide * high > limits.max_pixels:
            raise _too_large(sample, wide, high, when, limits)
    each = _LAYERED if found.layered else _TWICE
    extra = _PIXEL * sum(wide * high for wide, high, _ in plan.steps)
    with admit(each * width * height + extra + _FLOATS * plan.width * plan.height):
        image = _loaded(image, sample)
        if turn is not None:
            image = image.transpose(turn)
        array = np.asarray(_transform(image, spec, plan)).transpose(2, 0, 1)
        return array if pixels else normalised(array, spec)


def undecodable(sample: RawSample, reason: str) -> UndecodableSample:
    """The fault of ``sample``, with all members."""
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


@contextlib.contextmanager
def _faults_told(sample: RawSample) -> Iterator[None]:
    """What a decoder raises becomes a fault of ``sample``; on damage that may be anything."""
    try:
        yield
    except (HapiError, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        raise TooLarge(
            f"sample {sample.index} ({sample.key}): {error}", sample=sample.index, key=sample.key
        ) from None
    except UnidentifiedImageError:
        # Pillow's own text is about a buffer.
        raise undecodable(sample, "is no readable JPEG or PNG") from None
    except Exception as error:  # noqa: BLE001
        if "out of memory" in str(error):  # Pillow's decoders say it by an OSError.
            raise MemoryError(str(error)) from error
        raise undecodable(sample, reason(error)) from None


def _opened(found: Essence, sample: RawSample, limits: Limits) -> Image.Image:
    """With its size known and its pixels still to be decoded."""
    with _faults_told(sample):
        image = Image.open(io.BytesIO(found.data), formats=(found.format,))
    width, height = image.size
    if width * height > limits.max_pixels:
        raise _too_large(sample, width, height, "pixels", limits)
    if max(width, height) > _MAX_SIDE:
        raise TooLarge(
            f"sample {sample.index} ({sample.key}): {width}x{height} has a side of more than "
            f"{_MAX_SIDE} pixels",
            sample=sample.index,
            key=sample.key,
        )
    if found.layered:
        scans = min(MAX_SCANS, _MAX_WORK * limits.max_pixels // (width * height))
        if more_scans_than(found.data, scans):
            raise undecodable(sample, f"{width}x{height} pixels in more than {scans} scans")
    return image


def _loaded(image: Image.Image, sample: RawSample) -> Image.Image:
    """``image`` with its pixels, as RGB."""
    with _faults_told(sample):
        image.load()
        return image if image.mode == "RGB" else image.convert("RGB")


def _transform(image: Image.Image, spec: TransformSpec, plan: Plan) -> Image.Image:
    rng = plan.rng
    if plan.resized is not None:
        image = image.resize(plan.resized, _FILTERS[spec.interpolation])
    if spec.crop is not None:
        image = center_crop(image, pair(spec.crop))
    if plan.box is not None:
        left, top, width, height = plan.box
        out_height, out_width = pair(spec.rrc)
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
