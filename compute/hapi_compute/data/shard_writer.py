"""Shards of ``hapi put``: looked at, built, uploaded, or left alone."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from hapi_compute.data.errors import BadSource
from hapi_compute.data.manifest import ShardEntry
from hapi_compute.data.packing import build_tar
from hapi_compute.data.source import SourceSample
from hapi_compute.store.answer import bare_etag
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.names import SwiftUrl
from swift_hapi.protocol.errors import HapiError
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import TransformSpec
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import KINDS, RawSample

#: metadata of a shard: digest of what went into it, and how many samples came of it
_RECIPE, _SAMPLES = "X-Object-Meta-Hapi-Recipe", "X-Object-Meta-Hapi-Samples"
#: errors shown in full before only their number is told
_SHOWN = 10


def fault(sample: SourceSample) -> str | None:
    """Why a sample cannot be used; None if it can."""
    try:
        return _fault_of(sample, sample.read())
    except HapiError as error:
        return str(error.members.get("reason", error))


def _fault_of(sample: SourceSample, content: bytes) -> str | None:
    kind = KINDS[sample.extension]
    # A one-pixel crop: all of the image is decoded, next to nothing is converted.
    spec = TransformSpec(crop=1) if kind == "image" else None
    try:
        raw = RawSample(0, sample.key, -1, kind, memoryview(content))
        decode_sample(raw, spec, Limits())
    except HapiError as error:
        return str(error.members.get("reason", error))
    return None


def bad_source(source: Path | str, bad: list[str]) -> BadSource:
    """The error that names what cannot be used."""
    shown = "\n  ".join(bad[:_SHOWN])
    more = f"\n  and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    return BadSource(
        f"{source}: {len(bad)} files cannot be used (--skip-bad leaves them out):\n  {shown}{more}"
    )


@dataclass(frozen=True)
class Written:
    """What became of a shard; ``entry`` None if no sample of it was of use."""

    entry: ShardEntry | None
    labels: list[int | None]
    sent: bool
    bad: tuple[str, ...] = ()


class Writer:
    """Builds and uploads shards, from several threads at once.

    :param source: to name it in errors
    :param there: name to ETag of what lies below ``target``
    :param look: decode samples, since nobody has before
    :param skip_bad: leave out those that cannot be decoded
    """

    def __init__(
        self,
        client: SwiftClient,
        source: Path | str,
        target: SwiftUrl,
        there: dict[str, str],
        *,
        look: bool,
        skip_bad: bool,
    ):
        self._client = client
        self._source = source
        self._target = target
        self._there = there
        self._look = look
        self._skip_bad = skip_bad

    def put(self, name: str, samples: list[SourceSample]) -> Written:
        """:raises BadSource: of samples that are looked at only now, one is no image"""
        target = self._target
        old = self._there.get(target.name(name))
        recipe = _recipe(samples)
        if old is not None and recipe is not None:
            size = self._is_there(target.name(name), old, recipe, len(samples))
            if size is not None:
                entry = ShardEntry(name, old, len(samples), size)
                return Written(entry, [s.label for s in samples], False)
        bad: list[str] = []
        members = []
        for sample in samples:
            content = sample.read()
            why = _fault_of(sample, content) if self._look else None
            if why is None:
                members.append((sample.key, sample.extension, sample.label, content))
            else:
                bad.append(f"{sample.where}: {why}")
        if bad and not self._skip_bad:
            raise bad_source(self._source, bad)
        labels = [label for _, _, label, _ in members]
        if not members:
            return Written(None, labels, False, tuple(bad))
        tar = build_tar(members)
        etag = hashlib.md5(tar, usedforsecurity=False).hexdigest()
        if etag != old:
            headers = {}
            if recipe is not None:
                headers = {_RECIPE: recipe, _SAMPLES: str(len(members))}
            self._client.put(
                target.container, target.name(name), tar, content_type="application/x-tar",
                headers=headers,
            )  # fmt: skip
        entry = ShardEntry(name, etag, len(members), len(tar))
        return Written(entry, labels, etag != old, tuple(bad))

    def _is_there(self, name: str, etag: str, recipe: str, samples: int) -> int | None:
        """Bytes of the shard if it is what ``recipe`` makes, none of its samples left out."""
        answer = self._client.head(self._target.container, name)
        if answer is None or bare_etag(answer.headers.get("ETag")) != etag:
            return None
        if (answer.headers.get(_RECIPE), answer.headers.get(_SAMPLES)) != (recipe, str(samples)):
            return None
        return int(answer.headers["Content-Length"])


def _recipe(samples: list[SourceSample]) -> str | None:
    """What the bytes of a shard depend on, if that is known without reading its samples."""
    if not all(sample.tag for sample in samples):
        return None
    rows = [[s.key, s.extension, s.label, s.size, s.tag] for s in samples]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
