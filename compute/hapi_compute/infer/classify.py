"""Logits of every sample of a dataset, in listing order: what ``predict`` and ``eval`` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from hapi_compute.data.listing import Dataset, align_to, pin
from hapi_compute.infer.config import AUTO, RAW, ScanConfig
from hapi_compute.infer.product import Product, load
from hapi_compute.infer.scan import Scan, decoding, has_pushdown
from hapi_compute.plan.candidates import Candidate, candidate_at
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import PushdownUnavailable
from hapi_compute.store.names import SwiftUrl
from hapi_compute.train.plan import fewest_bytes
from swift_hapi.graph.allocator import keep_freed_memory
from swift_hapi.graph.cuts import Cut

_BATCH = 64


@dataclass(frozen=True)
class ClassifyConfig:
    """
    :param run: directory that ``hapi train --out`` wrote
    :param split: a cut of the frozen part, ``raw``, or ``auto``: the fewest bytes
    :param allow_code: execute the Python files that the product names
    """

    scan: ScanConfig
    run: str
    split: str = AUTO
    allow_code: bool = False

    def __post_init__(self):
        if self.scan.require_pushdown and self.split == RAW:
            raise ValueError("require_pushdown contradicts split=raw")


@dataclass(frozen=True)
class Answers:
    """Some samples of one object: ``logits`` float32 [n, classes], ``labels`` int64 [n], -1 where
    there is none."""

    shard: str
    keys: tuple[str, ...]
    labels: np.ndarray
    logits: np.ndarray


#: (shards done, shards in all)
Progress = Callable[[int, int], None]


class Classifier:
    """A product over one dataset."""

    def __init__(self, product: Product, dataset: Dataset, scan: Scan, cut: Cut | None, why: str):
        self.product = product
        self.dataset = dataset
        self.split = RAW if cut is None else cut.name
        self.why = why
        self._scan = scan
        self._rest = product.rest(cut)

    @property
    def fallbacks(self) -> int:
        """Shards so far that the store could not compute."""
        return self._scan.fallbacks

    def answers(self, progress: Progress = lambda done, total: None) -> Iterator[Answers]:
        """Object by object, in listing order."""
        shards = self.dataset.shards
        for done, (shard, samples) in enumerate(self._scan.shards(shards), 1):
            rows = torch.from_numpy(self._scan.rows(samples))
            found = [self._rest(part) for part in rows.split(_BATCH)]
            logits = torch.cat(found).float().numpy()
            yield Answers(shard.name, samples.keys, samples.labels, logits)
            progress(done, len(shards))


@contextmanager
def classifier(
    config: ClassifyConfig, store: SwiftClient, *, labelled: bool
) -> Iterator[Classifier]:
    """Load the product and pin the dataset.

    :param labelled: every sample must have a label, of one of the product's classes
    :raises ValueError: an option does not suit product or data
    :raises HapiError: what store or data raised
    """
    keep_freed_memory()
    product = load(config.run, config.allow_code)
    scan = config.scan
    url = SwiftUrl.parse(scan.dataset)
    if labelled:
        names = tuple(product.name_of(label) for label in range(product.num_classes))
        dataset = pin(store, url, len(names), scan.labels, class_names=names)
        dataset = align_to(dataset, names, product.where)
    else:
        dataset = pin(store, url, labels=scan.labels, unlabelled=True)
    cut, why = _choose(config, product, dataset, store)
    with decoding(scan) as pool:
        reader = Scan(
            scan, store, dataset, product.frozen, cut, product.input_shape, product.transform,
            product.num_classes if labelled else None, pool,
        )  # fmt: skip
        yield Classifier(product, dataset, reader, cut, why)


def _choose(
    config: ClassifyConfig, product: Product, dataset: Dataset, store: SwiftClient
) -> tuple[Cut | None, str]:
    if config.split == RAW:
        return None, "raw was asked for"
    if config.split != AUTO:
        return product.cut(config.split), f"cut {config.split} was asked for"
    if not has_pushdown(store):
        if config.scan.require_pushdown:
            raise PushdownUnavailable("a push-down is required, but the store has no hapi filter")
        return None, "the store has no hapi filter"
    raw = None if dataset.samples is None else dataset.bytes / dataset.samples
    if config.scan.require_pushdown:
        raw = None
    scan = config.scan

    def candidate(cut: Cut) -> Candidate:
        return candidate_at(cut, scan.dtype, scan.encoding, product.transform is not None)

    plan = fewest_bytes(product.frozen.cuts, raw, candidate)
    return plan.cut, plan.reason
