"""Weights of classes in the loss."""

from __future__ import annotations

from collections.abc import Sequence

from hapi_compute.data.listing import Dataset
from hapi_compute.data.manifest import NAME as MANIFEST_NAME
from hapi_compute.data.manifest import Manifest
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import NotFound
from hapi_compute.train.config import BALANCED, TrainConfig


def class_weights(
    config: TrainConfig, dataset: Dataset, store: SwiftClient, num_classes: int
) -> tuple[float, ...] | None:
    """One for each class; None: all the same.

    ``balanced`` gives a class n / (classes * its samples), n samples in all, so that every class
    has the same part in the loss and the mean weight of a sample is 1.

    :raises ValueError: not as many as there are classes, or their counts are not known
    """
    given = config.given_weights()
    if given is not None and len(given) != num_classes:
        raise ValueError(f"class_weights: {len(given)} numbers for {num_classes} classes")
    if config.class_weights != BALANCED:
        return given
    counts = _counts(dataset, store, num_classes)
    if counts is None:
        raise ValueError(
            f"class_weights={BALANCED}: {dataset.url} has no {MANIFEST_NAME} that would tell how "
            "many samples a class has; give numbers, or pack it with 'hapi put'"
        )
    return balanced(counts)


def balanced(counts: Sequence[int]) -> tuple[float, ...]:
    """A class without samples weighs nothing."""
    total, classes = sum(counts), sum(1 for count in counts if count)
    return tuple(total / (classes * count) if count else 0.0 for count in counts)


def _counts(dataset: Dataset, store: SwiftClient, num_classes: int) -> list[int] | None:
    counts = [0] * num_classes
    if all(shard.label is not None for shard in dataset.shards):
        for shard in dataset.shards:
            counts[shard.label] += 1
        return counts
    if any(shard.labels is not None for shard in dataset.shards):
        return None  # A table's labels, not the manifest's.
    where = dataset.url.name(MANIFEST_NAME)
    try:
        answer = store.get(dataset.url.container, where)
    except NotFound:
        return None
    found = Manifest.from_json(answer.body, f"{dataset.url.container}/{where}").class_counts
    return [*found, *counts[len(found) :]]
