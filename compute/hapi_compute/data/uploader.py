"""``hapi put``: labelled images to shards in a container, in parallel, resumable.

A shard that is there already is not sent again: by its ETag, or, where its samples would have to
be fetched from afar to know that, by a digest of what went into it that is kept in its metadata.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.labels import read_table
from hapi_compute.data.leftovers import earlier, left_over, remove
from hapi_compute.data.manifest import NAME as MANIFEST_NAME
from hapi_compute.data.manifest import NAMES, Manifest
from hapi_compute.data.names import Names
from hapi_compute.data.packing import pack, packed_size, shuffled
from hapi_compute.data.shard_writer import Writer, Written, bad_source, fault
from hapi_compute.data.source import Source, SourceSample
from hapi_compute.data.source_store import open_container
from hapi_compute.data.source_torchvision import PREFIX, open_torchvision
from hapi_compute.data.sources import open_source
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.names import SwiftUrl
from swift_hapi.protocol.limits import Limits

#: shards that a small dataset is spread over
_FEWEST_SHARDS = 8


@dataclass(frozen=True)
class PutConfig:
    """Options of one upload.

    :param source: directory, tar, table of files, ``torchvision:NAME:ROOT``, or
        ``swift://container/prefix`` with an image in each object
    :param labels: table of labels for a directory or container, or ``path`` for the latter
    :param unlabelled: store images without labels
    :param prune: remove shards that earlier uploads to ``target`` have left
    :param download: whether torchvision may fetch a dataset that is not there
    :param shard_samples: most samples in a shard; None: 128, and fewer for a small dataset, so
        that it has several shards to shuffle and to hold out
    :param shard_bytes: most bytes of a shard
    :param seed: of the order in which samples are packed
    :param jobs: shards built and uploaded at once
    :param skip_bad: leave files out that cannot be decoded, instead of failing
    :raises ValueError: an option is out of range; the message names it
    """

    source: Path | str
    target: SwiftUrl
    shard_samples: int | None = None
    shard_bytes: int = 16_000_000
    seed: int = 0
    jobs: int = 4
    skip_bad: bool = False
    labels: str | None = None
    download: bool = False
    unlabelled: bool = False
    prune: bool = False

    def __post_init__(self):
        limits = Limits()
        text = str(self.source)
        if text.startswith("swift://") and SwiftUrl.parse(text) == self.target:
            raise ValueError(f"source and target are both {self.target}")
        if self.unlabelled and self.labels is not None:
            raise ValueError("unlabelled contradicts labels")
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
    """``stale`` objects lie below the prefix that are not part of the dataset; ``left`` of them
    are shards of earlier uploads. ``pruned`` ones have been removed.

    ``ignored`` files are called like no image; ``notes`` say what is probably not meant.
    ``names`` are those of the files that samples were, by their keys; empty where there were none.
    """

    samples: int
    classes: tuple[str, ...]
    shards: int
    uploaded: int
    bytes: int
    bytes_uploaded: int
    skipped: tuple[str, ...]
    stale: int
    empty_classes: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left: int = 0
    pruned: int = 0

    def to_dict(self) -> dict:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in self.__dict__.items()}


Progress = Callable[[int, int], None]  #: (shards done, shards in all)


def open_any(config: PutConfig, client: SwiftClient, origin: SwiftClient | None) -> Source:
    """What ``config.source`` names.

    :raises ValueError, HapiError: see the module that opens it
    """
    text = str(config.source)
    if text.startswith("swift://"):
        return open_container(
            origin or client, SwiftUrl.parse(text), config.labels, unlabelled=config.unlabelled
        )
    if text.startswith(PREFIX):
        if config.labels is not None:
            raise ValueError("labels: torchvision's datasets have their own")
        if config.unlabelled:
            raise ValueError("unlabelled: torchvision's datasets have labels")
        return open_torchvision(text, config.download)
    table = None if config.labels is None else read_table(origin or client, config.labels)
    return open_source(Path(text), table, unlabelled=config.unlabelled)


def upload(
    config: PutConfig,
    client: SwiftClient,
    progress: Progress = lambda done, total: None,
    origin: SwiftClient | None = None,
) -> PutReport:
    """Pack and upload; shards that are there already are left alone.

    :param origin: client of the account that a source in the store lies in; None: ``client``
    :raises BadSource: naming the files that are no images, unless ``skip_bad``
    :raises HapiError: what the store says
    """
    source = open_any(config, client, origin)
    with ThreadPoolExecutor(config.jobs, thread_name_prefix="hapi-put") as pool:
        samples, bad = source.samples, list(source.unusable)
        if not source.far:
            samples, bad = _check(source, pool)
        if bad and not config.skip_bad:
            raise bad_source(config.source, bad)
        if not samples:
            raise DatasetError(f"{config.source}: no usable sample is left")
        ordered = [samples[i] for i in shuffled(len(samples), config.seed)]
        most = config.shard_samples or max(1, min(128, -(-len(ordered) // _FEWEST_SHARDS)))
        needs = [packed_size(s.size, s.key, s.extension) for s in ordered]
        plan = pack(needs, most, config.shard_bytes)
        client.put_container(config.target.container)
        prefix = config.target.name("")
        there = {o.name: o.etag for o in client.list(config.target.container, prefix)}
        writer = Writer(
            client, config.source, config.target, there, look=source.far, skip_bad=config.skip_bad
        )
        futures = {}
        for number, positions in enumerate(plan):
            members = [ordered[p] for p in positions]
            futures[pool.submit(writer.put, f"shard-{number:06d}.tar", members)] = number
        written: list[Written | None] = [None] * len(plan)
        try:
            for done, future in enumerate(as_completed(futures), 1):
                written[futures[future]] = future.result()
                progress(done, len(plan))
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    bad += [place for each in written for place in each.bad]
    # A shard may have lost all of its samples.
    entries = [each.entry for each in written if each.entry is not None]
    if not entries:
        raise DatasetError(f"{config.source}: no usable sample is left")
    labels = [n for each in written for n in each.labels if n is not None]
    counts = np.bincount(np.array(labels, np.int64), minlength=len(source.classes)).tolist()
    names = {s.key: s.name for s in samples if s.name}
    kept = {entry.name for entry in entries} | ({NAMES} if names else set())
    etag = _put(client, config, NAMES, Names.of(names.items()).to_json(), there) if names else None
    left = left_over(earlier(client, config.target), config.target, there, kept)
    manifest = Manifest(source.classes, tuple(counts), tuple(entries), config.seed, etag, left)
    _put(client, config, MANIFEST_NAME, manifest.to_json(), there)
    if config.prune and left:
        remove(client, config.target, left, config.jobs)
        manifest = replace(manifest, earlier=())
        _put(client, config, MANIFEST_NAME, manifest.to_json(), there)
    known = {config.target.name(each) for each in kept | {MANIFEST_NAME}}
    gone = len(left) if config.prune else 0
    return PutReport(
        samples=manifest.samples,
        classes=source.classes,
        shards=len(entries),
        uploaded=sum(each.sent for each in written),
        bytes=sum(entry.bytes for entry in entries),
        bytes_uploaded=sum(each.entry.bytes for each in written if each.sent),
        skipped=tuple(bad),
        stale=len(set(there) - known) - gone,
        empty_classes=tuple(
            name for name, count in zip(source.classes, counts, strict=True) if not count
        ),
        names=names,
        ignored=source.ignored,
        notes=source.notes,
        left=len(left) - gone,
        pruned=gone,
    )


def _check(source: Source, pool: ThreadPoolExecutor) -> tuple[list[SourceSample], list[str]]:
    """Decode everything once: a bad file is better found here than in the middle of a run."""
    reasons = list(pool.map(fault, source.samples, chunksize=1))
    usable = [s for s, why in zip(source.samples, reasons, strict=True) if why is None]
    bad = [f"{s.where}: {why}" for s, why in zip(source.samples, reasons, strict=True) if why]
    return usable, [*source.unusable, *bad]


def _put(
    client: SwiftClient, config: PutConfig, tail: str, body: bytes, there: dict[str, str]
) -> str:
    """Store a JSON document, unless it is there; its ETag."""
    name, etag = config.target.name(tail), hashlib.md5(body, usedforsecurity=False).hexdigest()
    if there.get(name) != etag:
        client.put(config.target.container, name, body, content_type="application/json")
        there[name] = etag
    return etag
