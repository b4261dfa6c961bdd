"""Objects of a container as what ``hapi put`` reads: one image each, to be packed into shards."""

from __future__ import annotations

from dataclasses import dataclass

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.keys import Keys
from hapi_compute.data.labels import LabelTable, PathLabels
from hapi_compute.data.listing import pin
from hapi_compute.data.source import Source, SourceSample
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.names import SwiftUrl


@dataclass(frozen=True)
class ObjectContent:
    """One object, as it was listed."""

    store: SwiftClient
    container: str
    name: str
    etag: str

    def read(self) -> bytes:
        """:raises Overwritten: it is another one by now"""
        return self.store.get(self.container, self.name, if_match=self.etag).body


def open_container(
    store: SwiftClient, url: SwiftUrl, labels: str | None, *, unlabelled: bool = False
) -> Source:
    """The single-image objects below ``url``, classes as :func:`~.listing.pin` finds them.

    :param labels: see :func:`~.listing.pin`
    :param unlabelled: take them without labels, even where folders say classes
    :raises DatasetError: there are none, or they are shards already
    :raises LabelMissing: a table lacks one
    """
    dataset = pin(store, url, labels=labels, unlabelled=unlabelled)
    if not dataset.single:
        raise DatasetError(f"{url}: holds shards already, not an image in each object")
    root = f"{url.prefix}/" if url.prefix else ""
    keys, samples = Keys(), []
    for shard in dataset.shards:
        name = shard.name[len(root) :] if shard.name.startswith(root) else shard.name
        stem, _, extension = name.rpartition(".")
        where = f"{url.container}/{shard.name}"
        label = None if unlabelled else shard.label
        if label is None and not unlabelled:
            found: LabelTable | PathLabels = shard.labels
            label = int(found.of([shard.name], where)[0])
        content = ObjectContent(store, url.container, shard.name, shard.etag)
        samples.append(
            SourceSample(
                keys.unique(stem), label, extension.lower(), shard.bytes, where, content,
                shard.etag, name,
            )
        )  # fmt: skip
    classes = () if unlabelled else dataset.classes
    return Source(tuple(samples), classes, far=True)
