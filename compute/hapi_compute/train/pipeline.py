"""Puts the loader together for one run: which reader, how far ahead, which shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hapi_compute.data.batches import Loader, Window
from hapi_compute.data.fetcher import Fetcher
from hapi_compute.data.listing import Dataset
from hapi_compute.data.readers import FeatureReader, Pushdown, RawReader
from hapi_compute.data.shards import Job, Reader
from hapi_compute.data.timings import Timings
from hapi_compute.store.client import SwiftClient
from hapi_compute.train.config import TrainConfig
from hapi_compute.train.task import LocalHead
from hapi_compute.train.threads import decode_threads
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.protocol.transform import TransformSpec


def decode_pool(config: TrainConfig) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(decode_threads(config), thread_name_prefix="hapi-decode")


@dataclass(frozen=True)
class Pipeline:
    """Everything the loaders of a run share.

    :param cut: where batches are taken; None: decoded images (raw)
    """

    config: TrainConfig
    store: SwiftClient
    extractor: Extractor
    input_shape: tuple[int, ...]
    cut: Cut | None
    model_container: str | None
    num_classes: int
    timings: Timings
    pool: ThreadPoolExecutor

    def reader(self, container: str) -> Reader:
        raw = RawReader(self.store, container, self.num_classes, self.timings)
        if self.cut is None:
            return raw
        pushdown = Pushdown(
            model=self.extractor.digest,
            cut=self.cut.name,
            cut_bytes=self.cut.bytes,
            micro_batch=self.config.micro_batch,
            encoding=self.config.encoding,
            model_container=self.model_container,
            required=self.config.require_pushdown,
        )
        return FeatureReader(
            self.store,
            container,
            self.num_classes,
            pushdown,
            raw,
            LocalHead(self.extractor, self.cut),
            self.pool,
            self.input_shape,
        )

    def loader(
        self,
        dataset: Dataset,
        windows: Sequence[Window],
        transform: Callable[[int], TransformSpec | None],
    ) -> Loader:
        """Start reading.

        :param transform: of an epoch
        """
        config = self.config
        jobs = (
            Job(shard, window.epoch, transform(window.epoch))
            for window in windows
            for shard in window.shards
        )
        prefetch = config.read_ahead
        if dataset.single:
            prefetch = max(prefetch, 2 * config.batch_size)
        fetcher = Fetcher(
            jobs,
            self.reader(dataset.url.container),
            concurrency=config.concurrency,
            prefetch=prefetch,
            max_bytes=config.prefetch_bytes,
        )
        return Loader(
            windows,
            fetcher,
            batch_size=config.batch_size,
            row_shape=self.input_shape if self.cut is None else self.cut.shape,
            pool=self.pool,
        )
