"""Grammar and meaning of ``X-Hapi-Transform``. Pure stdlib.

``key=value`` pairs joined by commas, lists in parentheses with blanks between the numbers::

    resize=256, crop=224, mean=(0.485 0.456 0.406), std=(0.229 0.224 0.225)

Whatever order the keys come in, the steps run in one fixed order and mean what the step of that
name means in ``torchvision.transforms`` on a PIL image:

``exif=apply|ignore`` (default apply), to RGB, ``resize=N|HxW`` (N = shorter side), then
``crop=N|HxW`` (centre) or ``rrc=N|HxW`` (random resized crop; with ``scale=(lo hi)`` and
``ratio=(lo hi)``), ``hflip=p``, then ``brightness=``, ``contrast=``, ``saturation=``, ``hue=`` in
an order that is drawn (``ColorJitter``), ``grayscale=p`` (three equal channels), then to float in
[0, 1], ``mean=(...)``, ``std=(...)``. ``interpolation=bilinear|bicubic|nearest`` is the filter of
the resizing steps. Random steps need ``seed=`` and ``epoch=``.

A colour step has a range ``(lo hi)`` that its factor is drawn from; a number x stands for
``(max(0, 1 - x) 1 + x)``, of ``hue`` for ``(-x x)``, and is the same transform.

Numbers may have up to 17 significant digits, enough for any float64 to survive the trip; RFC 9651
decimals (3 digits after the point) are not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from swift_hapi.protocol.errors import BadTransform

MAX_SIDE = 4096
INTERPOLATIONS = ("bilinear", "bicubic", "nearest")
#: the largest factor of brightness, contrast and saturation; beyond it a picture has two colours
MAX_FACTOR = 100
#: steps of ``ColorJitter``, in the order in which their factors are drawn
JITTER = ("brightness", "contrast", "saturation", "hue")
#: what makes the result depend on seed, epoch and key
RANDOM_STEPS = ("rrc", "hflip", *JITTER, "grayscale")
_RANDOM_STEPS = ", ".join(RANDOM_STEPS)
_NUMBER = re.compile(r"[+-]?(\d+)(?:\.(\d+))?(?:[eE][+-]?\d{1,3})?")
_INTEGER = re.compile(r"\d{1,19}")
_SIZE = re.compile(r"([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?")
_ITEM = re.compile(r"\s*([a-z]+)\s*=\s*(\([^()]*\)|[^,()\s]+)\s*")

Size = int | tuple[int, int]


def _bad(key: str, why: str) -> BadTransform:
    return BadTransform(f"X-Hapi-Transform: {key}: {why}")


def _number(key: str, text: str) -> float:
    found = _NUMBER.fullmatch(text)
    if not found:
        raise _bad(key, f"{text!r} is not a number")
    if len(((found.group(1) or "") + (found.group(2) or "")).lstrip("0")) > 17:
        raise _bad(key, f"{text!r} has more than 17 significant digits")
    value = float(text)
    if abs(value) > 1e6:
        raise _bad(key, f"{text!r} is out of range")
    return value


def _integer(key: str, text: str) -> int:
    if not _INTEGER.fullmatch(text) or int(text) >= 1 << 63:
        raise _bad(key, f"{text!r} is not an integer in [0, 2^63)")
    return int(text)


def _size(key: str, text: str) -> Size:
    found = _SIZE.fullmatch(text)
    if not found:
        raise _bad(key, f"{text!r} is neither N nor HxW")
    height, width = int(found.group(1)), int(found.group(2) or found.group(1))
    if max(height, width) > MAX_SIDE:
        raise _bad(key, f"{text!r} is larger than {MAX_SIDE}")
    return (height, width) if found.group(2) else height


def _list(key: str, text: str, lengths: tuple[int, ...]) -> tuple[float, ...]:
    if not text.startswith("("):
        raise _bad(key, f"{text!r} is not a list in parentheses")
    values = tuple(_number(key, word) for word in text[1:-1].split())
    if len(values) not in lengths:
        raise _bad(key, f"has {len(values)} numbers, not {' or '.join(map(str, lengths))}")
    return values


def _factors(key: str, text: str) -> tuple[float, float]:
    if text.startswith("("):
        # 0.0 is added so that -0.0 becomes 0.0: equal ranges have one text.
        low, high = (value + 0.0 for value in _list(key, text, (2,)))
        return low, high
    reach = _number(key, text)
    if reach < 0:
        raise _bad(key, f"{text!r} is negative; give x from 0 up, or a range (lo hi)")
    return (0.0 - reach, reach + 0.0) if key == "hue" else (max(0.0, 1 - reach), 1 + reach)


def _choice(key: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise _bad(key, f"{text!r} is none of {', '.join(choices)}")
    return text


_PARSERS = {
    "exif": lambda k, v: _choice(k, v, ("apply", "ignore")),
    "resize": _size,
    "crop": _size,
    "rrc": _size,
    "scale": lambda k, v: _list(k, v, (2,)),
    "ratio": lambda k, v: _list(k, v, (2,)),
    "hflip": _number,
    **dict.fromkeys(JITTER, _factors),
    "grayscale": _number,
    "interpolation": lambda k, v: _choice(k, v, INTERPOLATIONS),
    "mean": lambda k, v: _list(k, v, (1, 3)),
    "std": lambda k, v: _list(k, v, (1, 3)),
    "seed": _integer,
    "epoch": _integer,
}


def _format(value) -> str:
    if isinstance(value, tuple):
        if all(isinstance(v, int) for v in value):
            return "x".join(map(str, value))
        return "(" + " ".join(map(_format, value)) + ")"
    return repr(value) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class TransformSpec:
    """One parsed transform. ``str(spec)`` is canonical: equal specs give equal strings."""

    exif: str = "apply"
    resize: Size | None = None
    crop: Size | None = None
    rrc: Size | None = None
    scale: tuple[float, float] | None = None
    ratio: tuple[float, float] | None = None
    hflip: float | None = None
    brightness: tuple[float, float] | None = None
    contrast: tuple[float, float] | None = None
    saturation: tuple[float, float] | None = None
    hue: tuple[float, float] | None = None
    grayscale: float | None = None
    interpolation: str = "bilinear"
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    seed: int | None = None
    epoch: int | None = None

    def __post_init__(self):
        if self.crop is not None and self.rrc is not None:
            raise _bad("crop, rrc", "only one of the two may be given")
        if self.rrc is None and (self.scale is not None or self.ratio is not None):
            raise _bad("scale, ratio", "have a meaning only with rrc")
        if self.scale is not None and not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise _bad("scale", "must satisfy 0 < lo <= hi <= 1")
        if self.ratio is not None and not 0.01 <= self.ratio[0] <= self.ratio[1] <= 100:
            raise _bad("ratio", "must satisfy 0.01 <= lo <= hi <= 100")
        for key in ("hflip", "grayscale"):
            value = getattr(self, key)
            if value is not None and not 0 <= value <= 1:
                raise _bad(key, "must be a probability")
        for key in JITTER:
            low, high = (-0.5, 0.5) if key == "hue" else (0, MAX_FACTOR)
            value = getattr(self, key)
            if value is not None and not low <= value[0] <= value[1] <= high:
                given = f"the factors are from {value[0]} to {value[1]}"
                raise _bad(key, f"{given}; want {low} <= lo <= hi <= {high}")
        if self.std is not None and not all(s >= 1e-6 for s in self.std):
            raise _bad("std", "must be positive (1e-6 or more)")
        if self.random and (self.seed is None or self.epoch is None):
            raise _bad("seed, epoch", f"both are needed by random steps ({_RANDOM_STEPS})")
        if not self.random and (self.seed is not None or self.epoch is not None):
            raise _bad("seed, epoch", f"have a meaning only with random steps ({_RANDOM_STEPS})")
        if self.size is None:
            raise _bad(
                "resize, crop, rrc", "none of them fixes the size: add crop=N or resize=HxW"
            )

    @property
    def random(self) -> bool:
        """Whether the result depends on seed, epoch and the sample's key."""
        return any(getattr(self, key) is not None for key in RANDOM_STEPS)

    @property
    def size(self) -> tuple[int, int] | None:
        """(height, width) of every transformed image; None when the steps do not fix it."""
        last = self.rrc if self.rrc is not None else self.crop
        if last is not None:
            return last if isinstance(last, tuple) else (last, last)
        return self.resize if isinstance(self.resize, tuple) else None

    def __str__(self) -> str:
        parts = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value != field.default:
                parts.append(f"{field.name}={_format(value)}")
        return ", ".join(parts)


def parse_transform(text: str) -> TransformSpec:
    """Parse an ``X-Hapi-Transform`` value.

    :raises BadTransform: naming the key at fault (unknown, repeated, malformed, out of range)
    """
    return TransformSpec(**parse_pairs(text))


def parse_pairs(text: str) -> dict[str, object]:
    """The values of single keys, by the names they have in :class:`TransformSpec`; whether they
    make a transform together is not looked at.

    :raises BadTransform: naming the key at fault (unknown, repeated, malformed)
    """
    values: dict[str, object] = {}
    position = 0
    while True:
        item = _ITEM.match(text, position)
        if not item:
            raise BadTransform(
                f"X-Hapi-Transform: expected key=value at {text[position : position + 24]!r}"
            )
        key, value = item.groups()
        if key not in _PARSERS:
            raise _bad(key, f"is no step; the steps are {', '.join(_PARSERS)}")
        if key in values:
            raise _bad(key, "is given twice")
        values[key] = _PARSERS[key](key, value)
        position = item.end()
        if position == len(text):
            return values
        if text[position] != ",":
            raise BadTransform(
                f"X-Hapi-Transform: expected a comma at {text[position : position + 24]!r}"
            )
        position += 1
