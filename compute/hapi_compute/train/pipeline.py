"""Puts the loader together for one run: which readers, how far ahead, which shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from hapi_compute.data.batches import Loader
from hapi_compute.data.fetcher import Fetcher
from hapi_compute.data.listing import Dataset
from hapi_compute.data.readers import FeatureReader, Pushdown, RawReader
from hapi_compute.data.shards import Reader
from hapi_compute.data.timings import Timings
from hapi_compute.data.windows import Layout, Share, Window
from hapi_compute.plan.candidates import Candidate, candidate_at
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
    """Everything the loaders of a run share."""

    config: TrainConfig
    store: SwiftClient
    extractor: Extractor
    input_shape: tuple[int, ...]
    model_container: str | None
    num_classes: int
    timings: Timings
    pool: ThreadPoolExecutor
    share: Share = Share()

    @property
    def own_batch(self) -> int:
        """Samples of a full batch that are this rank's."""
        low, high = self.share.slots(self.config.batch_size)
        return high - low

    def layout(self, dataset: Dataset) -> Layout:
        """How training batches are made, and which part of them is this rank's.

        :raises DatasetError: there are several ranks, and the number of samples is not known
        """
        config = self.config
        return Layout(config.batch_size, dataset.samples, self.share, config.drop_last)

    def with_model_container(self, container: str | None) -> Pipeline:
        """:param container: value for ``X-Hapi-Model-Container``"""
        return replace(self, model_container=container)

    def candidate(self, cut: Cut) -> Candidate:
        """The way to read features at ``cut``, as this run wants them to travel."""
        config = self.config
        images = config.transform is not None
        return candidate_at(cut, config.dtype, config.encoding, images)

    def reader(self, container: str, candidate: Candidate) -> Reader:
        """What reads shards of ``container`` as ``candidate`` has it."""
        raw = RawReader(self.store, container, self.num_classes, self.timings)
        if candidate.cut is None:
            return raw
        pushdown = Pushdown(
            model=self.extractor.digest,
            cut=candidate.cut.name,
            cut_bytes=candidate.cut.bytes,
            micro_batch=self.config.micro_batch,
            encoding=candidate.encoding,
            dtype="float32" if candidate.dtype == "uint8" else candidate.dtype,
            pixels=candidate.dtype == "uint8",
            model_container=self.model_container,
            required=self.config.require_pushdown,
        )
        return FeatureReader(
            self.store,
            container,
            self.num_classes,
            pushdown,
            raw,
            LocalHead(self.extractor, candidate.cut),
            self.pool,
            self.input_shape,
        )

    def shapes(self) -> dict[str | None, tuple[int, ...]]:
        """Of one sample at each cut; None: of a decoded sample."""
        cuts = self.extractor.cuts_for(self.input_shape)
        return {None: self.input_shape} | {cut.name: cut.shape for cut in cuts}

    def loader(
        self,
        dataset: Dataset,
        windows: Sequence[Window],
        transform: Callable[[int], TransformSpec | None],
        reader: Reader,
        layout: Layout | None = None,
    ) -> Loader:
        """Start reading.

        :param transform: of an epoch
        :param layout: by default all samples, in batches
        """
        config = self.config
        prefetch = config.read_ahead
        if dataset.single:
            prefetch = max(prefetch, 2 * config.batch_size)
        layout = layout or Layout(config.batch_size)
        fetcher = Fetcher(
            layout.jobs(windows, transform),
            reader,
            concurrency=config.concurrency,
            prefetch=prefetch,
            max_bytes=config.prefetch_bytes,
        )
        return Loader(
            windows,
            fetcher,
            layout,
            shape_of=self.shapes().__getitem__,
            pool=self.pool,
        )
