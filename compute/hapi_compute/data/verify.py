"""``hapi verify``: whether a dataset in the store is whole, every byte of it looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.listing import Dataset, Shard, pin
from hapi_compute.data.manifest import NAME as MANIFEST_NAME
from hapi_compute.data.manifest import NAMES, Manifest
from hapi_compute.data.shards import label_array
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import AuthFailed, NotFound, Transient, Unreachable
from hapi_compute.store.names import SwiftUrl
from swift_hapi.protocol.errors import HapiError
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import TransformSpec
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import RawSample, read_shard

#: what says nothing about the dataset
_OURS = (AuthFailed, Unreachable, Transient)


@dataclass
class VerifyReport:
    """``problems`` are lines for people, each naming an object and, where there is one, a key.

    ``class_counts`` counts labels as found; ``digest`` is the manifest's, None without one.
    """

    url: str
    objects: int = 0
    samples: int = 0
    bytes: int = 0
    classes: tuple[str, ...] = ()
    class_counts: list[int] = field(default_factory=list)
    digest: str | None = None
    stray: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict:
        return {**self.__dict__, "good": self.good, "classes": list(self.classes)}


@dataclass
class _Seen:
    """What one object holds."""

    samples: int = 0
    bytes: int = 0
    labels: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


#: (objects done, objects in all)
Progress = Callable[[int, int], None]


def verify(
    store: SwiftClient,
    url: SwiftUrl,
    *,
    labels: str | None = None,
    num_classes: int | None = None,
    decode: bool = True,
    jobs: int = 4,
    progress: Progress = lambda done, total: None,
) -> VerifyReport:
    """Read every object of a dataset.

    :param labels: see :func:`hapi_compute.data.listing.pin`
    :param num_classes: for tar shards without a manifest; None: any number is a label
    :param decode: decode every sample
    :param jobs: objects at once
    :raises HapiError: the store cannot be asked, or there is nothing like a dataset
    """
    report = VerifyReport(str(url))
    manifest = _manifest(store, url, report)
    dataset = _dataset(store, url, labels, num_classes, manifest, report)
    if dataset is None:
        return report
    report.classes, report.stray = dataset.classes, dataset.stray
    report.objects = len(dataset.shards)
    most = len(dataset.classes) if dataset.classes else None
    wanted = bool(manifest is None or manifest.classes or labels)
    counts = [0] * len(dataset.classes)
    keys: dict[bytes, int] = {}
    with ThreadPoolExecutor(jobs, thread_name_prefix="hapi-verify") as pool:
        found = pool.map(
            lambda shard: _look(store, dataset, shard, most, decode, wanted), dataset.shards
        )
        for number, seen in enumerate(found):
            report.samples += seen.samples
            report.bytes += seen.bytes
            report.problems += seen.problems
            for label in seen.labels:
                counts += [0] * (label + 1 - len(counts))
                counts[label] += 1
            for key in seen.keys:
                other = keys.setdefault(key, number)
                if other != number:
                    report.problems.append(
                        f"{url.container}/{dataset.shards[number].name}: has a key that "
                        f"{dataset.shards[other].name} has too"
                    )
                    break
            progress(number + 1, report.objects)
    report.class_counts = counts
    if manifest is not None:
        _compare(report, manifest)
    return report


def _manifest(store: SwiftClient, url: SwiftUrl, report: VerifyReport) -> Manifest | None:
    name = url.name(MANIFEST_NAME)
    try:
        body = store.get(url.container, name).body
    except NotFound:
        return None
    try:
        manifest = Manifest.from_json(body, f"{url.container}/{name}")
    except DatasetError as error:
        report.problems.append(str(error))
        return None
    report.digest = manifest.digest
    return manifest


def _dataset(
    store: SwiftClient,
    url: SwiftUrl,
    labels: str | None,
    num_classes: int | None,
    manifest: Manifest | None,
    report: VerifyReport,
) -> Dataset | None:
    """The objects to look at; with a manifest, those that it names and that are there as it says.
    None where only a broken manifest is left to speak of."""
    if report.problems:
        return None
    if manifest is None:
        return pin(store, url, num_classes, labels, unlabelled=num_classes is None)
    there = {o.name: o for o in store.list(url.container, url.name(""))}
    good = []
    for entry in manifest.shards:
        name = url.name(entry.name)
        if name not in there:
            report.problems.append(f"{url.container}/{name}: is in the manifest, not in the store")
        elif (there[name].etag, there[name].bytes) != (entry.etag, entry.bytes):
            report.problems.append(
                f"{url.container}/{name}: is not the object in the manifest (ETag "
                f"{there[name].etag}, {there[name].bytes} bytes; manifest {entry.etag}, "
                f"{entry.bytes})"
            )
        else:
            good.append(Shard(name, entry.etag, entry.bytes, entry.samples))
    if manifest.names is not None:
        name = url.name(NAMES)
        if name not in there or there[name].etag != manifest.names:
            report.problems.append(f"{url.container}/{name}: is not what the manifest names")
    named = len({s.name for s in manifest.shards}) + (manifest.names is not None)
    stray = len(there) - named - 1
    if not report.problems:
        return pin(store, url, num_classes, labels, unlabelled=not manifest.classes)
    return Dataset(url, tuple(good), manifest.classes, max(0, stray))


def _look(
    store: SwiftClient,
    dataset: Dataset,
    shard: Shard,
    num_classes: int | None,
    decode: bool,
    wanted: bool,
) -> _Seen:
    seen = _Seen()
    where = f"{dataset.url.container}/{shard.name}"
    try:
        body = store.get(dataset.url.container, shard.name, if_match=shard.etag).body
        seen.bytes = len(body)
        samples = read_shard(body, shard.name, Limits()).samples
    except _OURS:
        raise
    except HapiError as error:
        seen.problems.append(str(error) if where in str(error) else f"{where}: {error}")
        return seen
    seen.samples = len(samples)
    if shard.samples is not None and len(samples) != shard.samples:
        seen.problems.append(f"{where}: has {len(samples)} samples, not {shard.samples}")
    for sample in samples:
        # Digests: all keys of a large dataset have to be held.
        seen.keys.append(hashlib.sha256(sample.key.encode("utf-8", "surrogatepass")).digest()[:16])
        why = _fault(sample, decode)
        if why is not None:
            seen.problems.append(f"{where}: sample {sample.key!r}: {why}")
        try:
            labelled = label_array([sample.label], (sample.key,), shard, where, num_classes)
        except HapiError as error:
            if why is None:
                seen.problems.append(str(error))
            continue
        if labelled[0] >= 0:
            seen.labels.append(int(labelled[0]))
        elif why is None and wanted:
            seen.problems.append(f"{where}: sample {sample.key!r} has no label")
    return seen


def _fault(sample: RawSample, decode: bool) -> str | None:
    if sample.error is not None or not decode:
        return sample.error
    # A one-pixel crop: all of the image is decoded, next to nothing is converted.
    spec = TransformSpec(crop=1) if sample.kind == "image" else None
    try:
        decode_sample(sample, spec, Limits())
    except HapiError as error:
        return str(error.members.get("reason", error))
    return None


def _compare(report: VerifyReport, manifest: Manifest) -> None:
    if report.samples != manifest.samples and report.good:
        report.problems.append(
            f"{report.url}: has {report.samples} samples, the manifest says {manifest.samples}"
        )
    for name, found, said in zip(
        manifest.classes, report.class_counts, manifest.class_counts, strict=False
    ):
        # With a problem above, counts cannot agree, and would only repeat it.
        if found != said and report.good:
            report.problems.append(
                f"{report.url}: class {name!r} has {found} samples, the manifest says {said}"
            )
