"""A dataset pinned at the start of a run: names, ETags and bytes of its objects.

Every later GET carries ``If-Match``, so an object that is overwritten while the run lasts is an
error that names it, never a silent mix.

With a manifest, the dataset is what the manifest says. Without one, it is every object below the
prefix whose name ends in a supported extension: tar shards, for which the number of classes must
be given, or single images, whose class is the name of the folder they lie in (classes sorted).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.manifest import NAME as MANIFEST_NAME
from hapi_compute.data.manifest import Manifest
from hapi_compute.store.client import ObjectInfo, SwiftClient
from hapi_compute.store.errors import NotFound
from hapi_compute.store.names import SwiftUrl
from swift_hapi.samples.shard import KINDS


@dataclass(frozen=True)
class Shard:
    """One object of a dataset.

    ``samples`` is None when not known beforehand; ``label`` is the class of a single-sample
    object, None where the shard itself carries labels.
    """

    name: str
    etag: str
    bytes: int
    samples: int | None = None
    label: int | None = None


@dataclass(frozen=True)
class Dataset:
    """A pinned listing in order of names. ``classes`` may be longer than the labels in use."""

    url: SwiftUrl
    shards: tuple[Shard, ...]
    classes: tuple[str, ...]
    stray: int = 0  #: objects below the prefix that are not part of the dataset

    @property
    def samples(self) -> int | None:
        counts = [shard.samples for shard in self.shards]
        return None if None in counts else sum(counts)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    @property
    def single(self) -> bool:
        """Whether every object is one sample."""
        return all(shard.label is not None for shard in self.shards)

    @property
    def digest(self) -> str:
        """sha256 over names, ETags and classes: equal digests, equal data."""
        state = hashlib.sha256()
        for text in (*self.classes, "", *(f"{s.etag} {s.name}" for s in self.shards)):
            state.update(text.encode("utf-8", "surrogatepass") + b"\n")
        return state.hexdigest()

    def subset(self, indices) -> Dataset:
        return replace(self, shards=tuple(self.shards[i] for i in indices))


def pin(client: SwiftClient, url: SwiftUrl, num_classes: int | None = None) -> Dataset:
    """List a dataset.

    :param num_classes: for tar shards without a manifest
    :raises NotFound: no such container
    :raises DatasetError: nothing usable there, or manifest and objects disagree
    """
    manifest = _manifest(client, url)
    try:
        objects = list(client.list(url.container, f"{url.prefix}/" if url.prefix else ""))
    except NotFound:
        raise NotFound(f"{url}: there is no container {url.container!r}") from None
    if not objects and url.prefix:
        objects = [o for o in client.list(url.container, url.prefix) if o.name == url.prefix]
    # By UTF-8 bytes, whatever collation a container server has.
    objects.sort(key=lambda found: found.name.encode())
    if manifest is not None:
        return _from_manifest(url, manifest, objects)
    usable = [found for found in objects if _extension(found.name) in ("tar", *KINDS)]
    if not usable:
        raise DatasetError(f"{url}: no object there ends in .tar, {', '.join(KINDS)}")
    if all(_extension(found.name) == "tar" for found in usable):
        return _from_tars(url, usable, len(objects) - len(usable), num_classes)
    if any(_extension(found.name) == "tar" for found in usable):
        raise DatasetError(f"{url}: holds both tar shards and single images; use two prefixes")
    return _from_folders(url, usable, len(objects) - len(usable), num_classes)


def _manifest(client: SwiftClient, url: SwiftUrl) -> Manifest | None:
    name = url.name(MANIFEST_NAME)
    try:
        answer = client.get(url.container, name)
    except NotFound:
        return None
    return Manifest.from_json(answer.body, f"{url.container}/{name}")


def _extension(name: str) -> str:
    return name.rpartition("/")[2].rpartition(".")[2].lower()


def _from_manifest(url: SwiftUrl, manifest: Manifest, objects: list[ObjectInfo]) -> Dataset:
    found = {each.name: each for each in objects}
    shards = []
    for entry in manifest.shards:
        name = url.name(entry.name)
        if name not in found:
            raise DatasetError(f"{url.container}/{name}: is in the manifest but not in the store")
        if found[name].etag != entry.etag:
            raise DatasetError(
                f"{url.container}/{name}: is not the object that the manifest describes (ETag "
                f"{found[name].etag}, manifest {entry.etag}); repeat 'hapi put'"
            )
        shards.append(Shard(name, entry.etag, entry.bytes, entry.samples))
    if not shards:
        raise DatasetError(f"{url}: the manifest names no shards")
    shards.sort(key=lambda shard: shard.name.encode())
    stray = len(objects) - len(shards) - 1
    return Dataset(url, tuple(shards), manifest.classes, stray)


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(count))


def _from_tars(
    url: SwiftUrl, objects: list[ObjectInfo], stray: int, num_classes: int | None
) -> Dataset:
    if num_classes is None:
        raise DatasetError(
            f"{url}: has no {MANIFEST_NAME}, so the number of classes is not known; "
            "give --num-classes"
        )
    shards = tuple(Shard(each.name, each.etag, each.bytes) for each in objects)
    return Dataset(url, shards, _numbered(num_classes), stray)


def _folder(path: str) -> str:
    """Name of the folder that ``path`` lies in, empty parts ("a//b.jpg") left aside."""
    return next((part for part in reversed(path.split("/")[:-1]) if part), "")


def _from_folders(
    url: SwiftUrl, objects: list[ObjectInfo], stray: int, num_classes: int | None
) -> Dataset:
    root = f"{url.prefix}/" if url.prefix else ""
    folders = [_folder(each.name[len(root) :]) for each in objects]
    for each, folder in zip(objects, folders, strict=True):
        if not folder:
            raise DatasetError(
                f"{url.container}/{each.name}: lies in no folder that would name its class"
            )
    classes = tuple(sorted(set(folders)))
    if num_classes is not None and num_classes < len(classes):
        raise DatasetError(f"{url}: has {len(classes)} class folders, more than {num_classes}")
    number = {name: label for label, name in enumerate(classes)}
    shards = tuple(
        Shard(each.name, each.etag, each.bytes, 1, number[folder])
        for each, folder in zip(objects, folders, strict=True)
    )
    return Dataset(url, shards, classes, stray)


def align(test: Dataset, train: Dataset) -> Dataset:
    """``test`` with the labels that ``train`` gives to the same classes.

    :raises DatasetError: they do not speak of the same classes
    """
    if test.classes == train.classes:
        return test
    unknown = sorted(set(test.classes) - set(train.classes))
    if unknown or not test.single:
        what = "numbers its classes differently than"
        if unknown:
            what = f"has a class {unknown[0]!r}, which is unknown to"
        raise DatasetError(f"{test.url}: {what} {train.url}")
    moved = [train.classes.index(name) for name in test.classes]
    shards = tuple(replace(shard, label=moved[shard.label]) for shard in test.shards)
    return replace(test, shards=shards, classes=train.classes)
