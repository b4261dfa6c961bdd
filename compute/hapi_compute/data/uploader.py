"""``hapi put``: labelled images to shards in a container, in parallel, resumable."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hapi_compute.data.errors import BadSource, DatasetError
from hapi_compute.data.manifest import NAME as MANIFEST_NAME
from hapi_compute.data.manifest import Manifest, ShardEntry
from hapi_compute.data.packing import build_tar, pack, shuffled
from hapi_compute.data.sources import Source, SourceSample, open_source
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.names import SwiftUrl
from swift_hapi.protocol.errors import HapiError
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import TransformSpec
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import KINDS, RawSample

#: shards that a small dataset is spread over
_FEWEST_SHARDS = 8
#: errors shown in full before only their number is told
_SHOWN = 10


@dataclass(frozen=True)
class PutConfig:
    """Options of one upload.

    :param shard_samples: most samples in a shard; None: 128, and fewer for a small dataset, so
        that it has several shards to shuffle and to hold out
    :param shard_bytes: most bytes of a shard
    :param seed: of the order in which samples are packed
    :param jobs: shards built and uploaded at once
    :param skip_bad: leave files out that cannot be decoded, instead of failing
    :raises ValueError: an option is out of range; the message names it
    """

    source: Path
    target: SwiftUrl
    shard_samples: int | None = None
    shard_bytes: int = 16_000_000
    seed: int = 0
    jobs: int = 4
    skip_bad: bool = False

    def __post_init__(self):
        limits = Limits()
        for name, low, high in (
            ("shard_samples", 1, limits.max_samples),
            ("shard_bytes", 1 << 16, limits.max_object_bytes),
            ("jobs", 1, 64),
            ("seed", 0, (1 << 63) - 1),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name}={getattr(self, name)}: want {low} to {high}")


@dataclass(frozen=True)
class PutReport:
    """``stale`` objects lie below the prefix from an earlier, larger upload; nobody reads them."""

    samples: int
    classes: tuple[str, ...]
    shards: int
    uploaded: int
    bytes: int
    bytes_uploaded: int
    skipped: tuple[str, ...]
    stale: int
    empty_classes: tuple[str, ...] = ()

    def to_dict(self) -> dict:
        return {**self.__dict__, "classes": list(self.classes), "skipped": list(self.skipped)}


Progress = Callable[[int, int], None]  #: (shards done, shards in all)


def upload(
    config: PutConfig, client: SwiftClient, progress: Progress = lambda done, total: None
) -> PutReport:
    """Pack and upload; shards that are there already are left alone.

    :raises BadSource: naming the files that are no images, unless ``skip_bad``
    :raises HapiError: what the store says
    """
    source = open_source(config.source)
    with ThreadPoolExecutor(config.jobs, thread_name_prefix="hapi-put") as pool:
        samples, bad = _check(source, pool)
        if bad and not config.skip_bad:
            raise _bad_source(config.source, bad)
        if not samples:
            raise DatasetError(f"{config.source}: no usable sample is left")
        ordered = [samples[i] for i in shuffled(len(samples), config.seed)]
        most = config.shard_samples or max(1, min(128, -(-len(ordered) // _FEWEST_SHARDS)))
        plan = pack([s.size for s in ordered], most, config.shard_bytes)
        client.put_container(config.target.container)
        prefix = config.target.name("")
        there = {o.name: o.etag for o in client.list(config.target.container, prefix)}
        futures = {}
        for number, positions in enumerate(plan):
            name = f"shard-{number:06d}.tar"
            members = [ordered[p] for p in positions]
            old = there.get(config.target.name(name))
            futures[pool.submit(_put_shard, client, config.target, name, members, old)] = number
        entries: list[ShardEntry | None] = [None] * len(plan)
        uploaded = sent = 0
        try:
            for done, future in enumerate(as_completed(futures), 1):
                entry, was_sent = future.result()
                entries[futures[future]] = entry
                uploaded += was_sent
                sent += entry.bytes * was_sent
                progress(done, len(plan))
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    _put_manifest(client, config, source, samples, entries, there)
    labels = {sample.label for sample in samples}
    known = {config.target.name(e.name) for e in entries} | {config.target.name(MANIFEST_NAME)}
    return PutReport(
        samples=len(samples),
        classes=source.classes,
        shards=len(entries),
        uploaded=uploaded,
        bytes=sum(entry.bytes for entry in entries),
        bytes_uploaded=sent,
        skipped=tuple(bad),
        stale=len(set(there) - known),
        empty_classes=tuple(
            name for label, name in enumerate(source.classes) if label not in labels
        ),
    )


def _check(source: Source, pool: ThreadPoolExecutor) -> tuple[list[SourceSample], list[str]]:
    """Decode everything once: a bad file is better found here than in the middle of a run."""
    reasons = list(pool.map(_fault, source.samples, chunksize=1))
    usable = [s for s, why in zip(source.samples, reasons, strict=True) if why is None]
    bad = [f"{s.where}: {why}" for s, why in zip(source.samples, reasons, strict=True) if why]
    return usable, [*source.unusable, *bad]


def _fault(sample: SourceSample) -> str | None:
    kind = KINDS[sample.extension]
    # A one-pixel crop: all of the image is decoded, next to nothing is converted.
    spec = TransformSpec(crop=1) if kind == "image" else None
    try:
        raw = RawSample(0, sample.key, sample.label, kind, memoryview(sample.read()))
        decode_sample(raw, spec, Limits())
    except HapiError as error:
        return str(error.members.get("reason", error))
    return None


def _bad_source(path: Path, bad: list[str]) -> BadSource:
    shown = "\n  ".join(bad[:_SHOWN])
    more = f"\n  and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    return BadSource(
        f"{path}: {len(bad)} files cannot be used (--skip-bad leaves them out):\n  {shown}{more}"
    )


def _put_shard(
    client: SwiftClient,
    target: SwiftUrl,
    name: str,
    samples: list[SourceSample],
    old_etag: str | None,
) -> tuple[ShardEntry, bool]:
    tar = build_tar((s.key, s.extension, s.label, s.read()) for s in samples)
    etag = hashlib.md5(tar, usedforsecurity=False).hexdigest()
    if etag != old_etag:
        client.put(target.container, target.name(name), tar, content_type="application/x-tar")
    return ShardEntry(name, etag, len(samples), len(tar)), etag != old_etag


def _put_manifest(
    client: SwiftClient,
    config: PutConfig,
    source: Source,
    samples: list[SourceSample],
    entries: list[ShardEntry],
    there: dict[str, str],
) -> None:
    counts = np.bincount([s.label for s in samples], minlength=len(source.classes))
    manifest = Manifest(source.classes, tuple(counts.tolist()), tuple(entries), config.seed)
    body = manifest.to_json()
    name = config.target.name(MANIFEST_NAME)
    if there.get(name) != hashlib.md5(body, usedforsecurity=False).hexdigest():
        client.put(config.target.container, name, body, content_type="application/json")
