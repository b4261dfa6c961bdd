"""Object bytes to samples: a tar in WebDataset layout, or a single image or ``.npy`` tensor.

A tar member ``dir/0001.seg.png`` belongs to the sample with key ``dir/0001`` and has the
extension ``seg.png`` (the base name is split at its first dot, as WebDataset does). A key with an
image or tensor member is a sample; others are skipped. Nothing is copied: samples are views into
the object's bytes. A sample's label is the number in ``.cls``, or else ``label`` in ``.json``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from swift_hapi.protocol.errors import SampleRangeError, TooLarge, UnsupportedFormat
from swift_hapi.protocol.headers import SampleRange
from swift_hapi.protocol.limits import Limits
from swift_hapi.samples.tar import TarError, TooManyHeaders, regular_files

#: extension -> kind, in the order of preference when a sample has several
KINDS = {"jpg": "image", "jpeg": "image", "png": "image", "npy": "tensor"}
_MEMBERS_PER_SAMPLE = 16
_JSON_BYTES = 1 << 14  #: a larger .json holds more than a label, and is not looked into
_LABEL = re.compile(rb"\s*(\d{1,18})\s*")
_JPEG = b"\xff\xd8\xff"
_PNG = b"\x89PNG\r\n\x1a\n"
_NPY = b"\x93NUMPY"


@dataclass(frozen=True)
class RawSample:
    """One undecoded sample.

    ``index`` is its place among the shard's samples; ``label`` is -1 when unknown; ``kind`` is
    ``image`` or ``tensor``; ``error`` says why it cannot be used, if that is known already.
    """

    index: int
    key: str
    label: int
    kind: str
    data: memoryview
    error: str | None = None


@dataclass(frozen=True)
class ShardContents:
    """``samples`` in shard order; ``total`` is the number in the whole shard."""

    total: int
    samples: tuple[RawSample, ...]


def read_shard(
    data: bytes | bytearray | memoryview,
    name: str,
    limits: Limits,
    wanted: SampleRange | None = None,
) -> ShardContents:
    """Find the samples in an object.

    :param data: the whole object
    :param name: the object's name within its container: the key of a single-sample object, so
        that both tiers key it alike; also names the object in errors
    :param wanted: keep only these indices
    :raises UnsupportedFormat: neither tar, JPEG, PNG nor npy, or no sample in it
    :raises TooLarge: more than ``limits.max_samples`` samples
    :raises SampleRangeError: ``wanted`` reaches past the last sample
    """
    view = memoryview(data)
    kind = _single_kind(bytes(view[:8]))
    if kind:
        samples = [RawSample(0, name, -1, kind, view)]
    else:
        samples = _tar_samples(view, name, limits)
    total = len(samples)
    if wanted is not None:
        if wanted.last >= total:
            raise SampleRangeError(
                f"X-Hapi-Samples: {wanted} reaches past the last of {total} samples of {name}",
                total=total,
            )
        samples = samples[wanted.first : wanted.last + 1]
    return ShardContents(total, tuple(samples))


def _single_kind(head: bytes) -> str | None:
    if head.startswith((_JPEG, _PNG)):
        return "image"
    return "tensor" if head.startswith(_NPY) else None


def _members(view: memoryview, name: str, limits: Limits):
    """(member name, content) of every regular file."""
    most = limits.max_samples * _MEMBERS_PER_SAMPLE
    try:
        yield from regular_files(view, most)
    except TooManyHeaders:
        raise TooLarge(f"{name}: tar has more than {most} members") from None
    except TarError as error:
        raise UnsupportedFormat(
            f"{name}: neither an uncompressed tar nor a JPEG, PNG or npy file ({error})"
        ) from None


def _split_name(member: str) -> tuple[str, str]:
    directory, slash, base = member.removeprefix("./").rpartition("/")
    stem, _, extension = base.partition(".")
    return directory + slash + stem, extension.lower()


def _tar_samples(view: memoryview, name: str, limits: Limits) -> list[RawSample]:
    groups: dict[str, dict[str, memoryview]] = {}
    doubled: set[str] = set()
    for member, content in _members(view, name, limits):
        key, extension = _split_name(member)
        if not key.rpartition("/")[2]:
            continue  # hidden files such as ._0001.jpg
        parts = groups.setdefault(key, {})
        if extension in parts:
            doubled.add(key)
        parts[extension] = content
    samples: list[RawSample] = []
    for key, parts in groups.items():
        extension = next((e for e in KINDS if e in parts), None)
        if extension is None:
            continue
        if len(samples) >= limits.max_samples:
            raise TooLarge(f"{name}: has more than {limits.max_samples} samples")
        label, error = _label(parts.get("cls"), parts.get("json"))
        if key in doubled:
            error = "the key occurs twice in the shard"
        samples.append(
            RawSample(len(samples), key, label, KINDS[extension], parts[extension], error)
        )
    if not samples:
        raise UnsupportedFormat(f"{name}: tar has no sample ({', '.join(KINDS)})")
    return samples


def _label(content: memoryview | None, document: memoryview | None) -> tuple[int, str | None]:
    if content is None:
        return _json_label(document), None
    found = _LABEL.fullmatch(bytes(content[:64])) if len(content) <= 64 else None
    if not found:
        return -1, f".cls holds {bytes(content[:24])!r}, not a class number"
    return int(found.group(1)), None


def _json_label(document: memoryview | None) -> int:
    """-1 where there is none: ``.json`` may be anything."""
    if document is None or len(document) > _JSON_BYTES:
        return -1
    try:
        label = json.loads(bytes(document))["label"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return -1
    known = isinstance(label, int) and not isinstance(label, bool) and 0 <= label < 10**18
    return label if known else -1
