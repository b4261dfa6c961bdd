"""A dataset pinned at the start of a run: names, ETags and bytes of its objects.

Every later GET carries ``If-Match``, so an object that is overwritten while the run lasts is an
error that names it, never a silent mix.

With a manifest, the dataset is what the manifest says. Without one, it is every object below the
prefix whose name ends in a supported extension: tar shards, for which the number of classes must
be given, or single images, whose class is the name of the folder they lie in (classes sorted).
Labels may come from a table instead (:mod:`hapi_compute.data.labels`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.labels import PATH, Labels, PathLabels, folder_of, read_table
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
    object, None where the shard itself carries labels; ``labels`` are those of a table, by key.
    """

    name: str
    etag: str
    bytes: int
    samples: int | None = None
    label: int | None = None
    labels: Labels | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Dataset:
    """A pinned listing in order of names. ``classes`` may be longer than the labels in use.

    ``names`` is the ETag of what tells how files were called (:mod:`hapi_compute.data.names`),
    ``manifest`` the digest of the manifest; None where there is none.
    """

    url: SwiftUrl
    shards: tuple[Shard, ...]
    classes: tuple[str, ...]
    stray: int = 0  #: objects below the prefix that are not part of the dataset
    names: str | None = None
    manifest: str | None = None

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
        return all(_extension(shard.name) in KINDS for shard in self.shards)

    @property
    def named(self) -> bool:
        """Whether classes have names: of a manifest, a table or folders."""
        return all(shard.samples is not None or shard.labels for shard in self.shards)

    @property
    def digest(self) -> str:
        """sha256 over names, ETags, classes, labels of a table: equal digests, equal data."""
        state = hashlib.sha256()
        labels = {s.labels.digest for s in self.shards[:1] if s.labels}
        names = (f"{s.etag} {s.name}" for s in self.shards)
        for text in (*self.classes, "", *names, *labels):
            state.update(text.encode("utf-8", "surrogatepass") + b"\n")
        return state.hexdigest()

    @property
    def identity(self) -> dict[str, str | None]:
        """For descriptions: ``url``, ``digest`` as ``hapi ls`` and ``verify`` tell it, None
        without a manifest, and ``listing_digest``, this object's own."""
        return {
            "url": str(self.url), "digest": self.manifest, "listing_digest": self.digest,
        }  # fmt: skip

    def subset(self, indices) -> Dataset:
        return replace(self, shards=tuple(self.shards[i] for i in indices))


def pin(
    client: SwiftClient,
    url: SwiftUrl,
    num_classes: int | None = None,
    labels: str | None = None,
    *,
    unlabelled: bool = False,
    class_names: tuple[str, ...] = (),
) -> Dataset:
    """List a dataset.

    :param num_classes: for tar shards without a manifest
    :param labels: None: from the shards, or the folders of single images; ``path``: from the
        folder of each key; else the place of a table, see :func:`labels.read_table`
    :param unlabelled: do without labels and classes where there are none
    :param class_names: what the numbers mean where nothing else says
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
        if not (manifest.classes or unlabelled or labels):
            raise DatasetError(f"{url}: was stored without labels; give a table (--labels)")
        return _labelled(client, _from_manifest(url, manifest, objects), labels, class_names)
    usable = [found for found in objects if _extension(found.name) in ("tar", *KINDS)]
    if not usable:
        raise DatasetError(f"{url}: no object there ends in .tar, {', '.join(KINDS)}")
    stray = len(objects) - len(usable)
    elsewhere = unlabelled or labels not in (None, PATH)
    if all(_extension(found.name) == "tar" for found in usable):
        if num_classes is None and elsewhere:
            return _labelled(client, _bare(url, usable, stray), labels, class_names)
        found = _from_tars(url, usable, stray, num_classes)
        if len(class_names) == num_classes:
            found = replace(found, classes=class_names)
        return _labelled(client, found, labels, class_names)
    if any(_extension(found.name) == "tar" for found in usable):
        raise DatasetError(f"{url}: holds both tar shards and single images; use two prefixes")
    root = f"{url.prefix}/" if url.prefix else ""
    foldered = all(folder_of(each.name[len(root) :]) for each in usable)
    if labels not in (None, PATH) or (unlabelled and not foldered and labels is None):
        return _labelled(client, _bare(url, usable, stray), labels, class_names)
    return _from_folders(url, usable, stray, num_classes)


def _bare(url: SwiftUrl, objects: list[ObjectInfo], stray: int) -> Dataset:
    """Without labels and classes."""
    shards = tuple(
        Shard(o.name, o.etag, o.bytes, 1 if _extension(o.name) in KINDS else None)
        for o in objects
    )
    return Dataset(url, shards, (), stray)


def _labelled(
    client: SwiftClient, dataset: Dataset, labels: str | None, class_names: tuple[str, ...]
) -> Dataset:
    """With labels from elsewhere, if so asked."""
    if labels is None:
        return dataset
    classes = dataset.classes or class_names
    if labels == PATH:
        numbers = {name: number for number, name in enumerate(classes)}
        if not dataset.named and not class_names:
            raise DatasetError(
                f"{dataset.url}: no manifest says which folders are classes; label by a table"
            )
        found: Labels = PathLabels(numbers)
    else:
        root = f"{dataset.url.prefix}/" if dataset.url.prefix and dataset.single else ""
        found, classes = read_table(client, labels).numbered(classes, root)
    shards = tuple(replace(shard, label=None, labels=found) for shard in dataset.shards)
    return replace(dataset, shards=shards, classes=classes)


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
    stray = len(objects) - len(shards) - 1 - (manifest.names is not None)
    return Dataset(
        url, tuple(shards), manifest.classes, stray, manifest.names, manifest.digest
    )


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


def _from_folders(
    url: SwiftUrl, objects: list[ObjectInfo], stray: int, num_classes: int | None
) -> Dataset:
    root = f"{url.prefix}/" if url.prefix else ""
    folders = [folder_of(each.name[len(root) :]) for each in objects]
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
    return align_to(test, train.classes, str(train.url))


def align_to(dataset: Dataset, classes: tuple[str, ...], whose: str) -> Dataset:
    """``dataset`` with the labels that ``whose`` numbering of ``classes`` gives.

    Numbered classes without names are taken to be numbered alike.

    :raises DatasetError: they do not speak of the same classes
    """
    if dataset.classes == classes:
        return dataset
    if not dataset.named and len(dataset.classes) <= len(classes):
        return replace(dataset, classes=classes)
    unknown = sorted(set(dataset.classes) - set(classes))
    if unknown or any(shard.label is None for shard in dataset.shards):
        what = "numbers its classes differently than"
        if unknown:
            what = f"has a class {unknown[0]!r}, which is unknown to"
        raise DatasetError(f"{dataset.url}: {what} {whose}")
    moved = [classes.index(name) for name in dataset.classes]
    shards = tuple(replace(shard, label=moved[shard.label]) for shard in dataset.shards)
    return replace(dataset, shards=shards, classes=classes)
