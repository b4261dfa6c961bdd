"""One pass over a dataset in listing order, several shards in flight.

A shard comes as features at a cut, computed in the store, or, where the store cannot, as the
object itself with the head run here; or always as the object itself, for ``raw``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch

from hapi_compute.data.fetcher import Fetcher
from hapi_compute.data.listing import Dataset, Shard
from hapi_compute.data.readers import FeatureReader, Pushdown, RawReader
from hapi_compute.data.rows import ImageRows
from hapi_compute.data.shards import Job, ShardSamples
from hapi_compute.data.timings import Timings
from hapi_compute.infer.config import ScanConfig
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import PushdownUnavailable
from hapi_compute.train.task import LocalHead
from hapi_compute.train.threads import cpus
from hapi_compute.train.upload_model import ensure_uploaded
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.protocol.transform import TransformSpec


def has_pushdown(store: SwiftClient) -> bool:
    """Whether the store may run heads: an operator may hide ``/info``, then only trying tells."""
    info = store.info()
    return not info or "swift_hapi" in info


class Scan:
    """What reads the shards of one dataset.

    :param cut: of ``extractor``, for samples of ``input_shape``; None: raw, decoded samples
    :param num_classes: None: labels may be missing
    """

    def __init__(
        self,
        config: ScanConfig,
        store: SwiftClient,
        dataset: Dataset,
        extractor: Extractor,
        cut: Cut | None,
        input_shape: tuple[int, ...],
        transform: TransformSpec | None,
        num_classes: int | None,
        pool: ThreadPoolExecutor,
    ):
        self._config = config
        self._transform = transform
        self._pool = pool
        self.shape = input_shape if cut is None else cut.shape
        self.fallbacks = 0
        container = dataset.url.container
        raw = RawReader(store, container, num_classes, Timings(store.occupancy))
        self._single = dataset.single
        self._reader = raw
        self._input_shape = input_shape
        self._head: LocalHead | None = None
        if cut is None:
            return
        if not has_pushdown(store):
            if config.require_pushdown:
                raise PushdownUnavailable(
                    "a push-down is required, but the store has no hapi filter"
                )
            self._head = LocalHead(extractor, cut)
            return
        model_container = ensure_uploaded(extractor, store)[0]
        self._reader = FeatureReader(
            store,
            container,
            num_classes,
            Pushdown(
                model=extractor.digest,
                cut=cut.name,
                cut_bytes=cut.bytes,
                micro_batch=config.micro_batch,
                encoding=config.encoding,
                model_container=model_container,
                required=config.require_pushdown,
                dtype=config.dtype,
                pixels=cut.index == 0,
            ),
            raw,
            LocalHead(extractor, cut),
            pool,
            input_shape,
        )

    def shards(self, shards: Sequence[Shard]) -> Iterator[tuple[Shard, ShardSamples]]:
        """In the order of ``shards``.

        :raises HapiError: what reading one raised, when its turn comes
        """
        config = self._config
        # Single images: as many samples ahead as a few shards would have.
        ahead = 4 * config.micro_batch if self._single else 0
        jobs = (Job(shard, 0, self._transform) for shard in shards)
        with Fetcher(
            jobs,
            self._reader,
            concurrency=config.concurrency,
            prefetch=max(config.prefetch, ahead),
            max_bytes=config.prefetch_bytes,
        ) as fetcher:
            for shard, samples in zip(shards, fetcher, strict=True):
                self.fallbacks += samples.fallback or self._head is not None
                yield shard, samples

    def rows(self, samples: ShardSamples) -> np.ndarray:
        """All samples of a shard as float32 [n, *shape].

        :raises HapiError: naming object and sample
        """
        found = np.empty((len(samples), *self.shape), dtype=np.float32)
        if self._head is None:
            self._load(samples, 0, found)
            return found
        # In the micro-batches of the storage tier, so that the place changes nothing else.
        step = self._config.micro_batch
        for start in range(0, len(samples), step):
            part = found[start : start + step]
            images = np.empty((len(part), *self._input_shape), dtype=np.float32)
            self._load(samples, start, images)
            part[...] = self._head(images)
        return found

    def _load(self, samples: ShardSamples, start: int, found: np.ndarray) -> None:
        load, places = samples.rows.load, range(start, start + len(found))
        if isinstance(samples.rows, ImageRows):
            list(self._pool.map(load, places, found))
        else:
            for position, out in zip(places, found, strict=True):
                load(position, out)


@contextmanager
def decoding(config: ScanConfig) -> Iterator[ThreadPoolExecutor]:
    """A pool that decodes, and torch's threads as the options say."""
    before = torch.get_num_threads()
    torch.set_num_threads(config.threads or cpus())
    workers = config.decode_threads or max(1, cpus() // 2)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="hapi-decode")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)
