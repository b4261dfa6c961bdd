"""The three ways to read a shard: raw, as features, and raw in place of features."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.listing import Shard
from hapi_compute.data.rows import ArrayRows, ImageRows, PackedRows
from hapi_compute.data.shards import Job, ShardSamples, label_array
from hapi_compute.data.timings import Timings
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import PushdownUnavailable
from hapi_compute.store.features import FeatureStats, get_features
from hapi_compute.store.occupancy import RECEIVE
from hapi_compute.store.retry import Stopped
from swift_hapi.graph.packing import pack, unpack
from swift_hapi.protocol.errors import DtypeOverflow, HapiError
from swift_hapi.protocol.headers import FeatureRequest, SampleRange
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.payload import Features
from swift_hapi.protocol.wire import ARRAYS, LOSSY
from swift_hapi.samples.shard import read_shard

#: after this many shards in a row that fell back, features are asked for only once each
_PATIENCE = 2


class RawReader:
    """Plain GET of the whole object, also where only a part of its samples is wanted."""

    def __init__(
        self,
        client: SwiftClient,
        container: str,
        num_classes: int,
        timings: Timings,
        limits: Limits | None = None,
    ):
        self._client = client
        self._container = container
        self._num_classes = num_classes
        self.timings = timings
        self.limits = limits or Limits()

    def expected_bytes(self, job: Job) -> int:
        return job.shard.bytes

    def where(self, shard: Shard) -> str:
        return f"{self._container}/{shard.name}"

    def read(self, job: Job, sleep) -> ShardSamples:
        shard, where = job.shard, self.where(job.shard)
        answer = self._client.get(self._container, shard.name, if_match=shard.etag, sleep=sleep)
        contents = read_shard(answer.body, shard.name, self.limits, job.samples)
        _check_count(shard, contents.total, where)
        keys = tuple(sample.key for sample in contents.samples)
        # A sample that is known to be bad says so when it is loaded, and better than its label.
        labels = [0 if s.error is not None else s.label for s in contents.samples]
        return ShardSamples(
            ImageRows(contents.samples, job.transform, where, self.limits, self.timings),
            keys,
            label_array(labels, keys, shard, where, self._num_classes),
            bytes_received=len(answer.body),
            times=(answer.times,),
            first=_first(job),
        )


def _first(job: Job) -> int:
    return 0 if job.samples is None else job.samples.first


def _check_count(shard: Shard, total: int | None, where: str) -> None:
    if shard.samples is not None and total not in (None, shard.samples):
        raise DatasetError(f"{where}: has {total} samples, its manifest says {shard.samples}")


@dataclass(frozen=True)
class Pushdown:
    """What to ask the storage tier for.

    :param model: ``sha256:<hex>`` of the extractor file
    :param cut_bytes: of one sample at the cut, float32
    :param dtype: that features travel as
    :param pixels: the cut is the input; images travel as pixels, and nothing is lost by that
    :param model_container: quoted ``[account/]container``, None for the default
    :param required: a shard that cannot be had as features is an error
    """

    model: str
    cut: str
    cut_bytes: int
    micro_batch: int
    encoding: str = "identity"
    model_container: str | None = None
    required: bool = False
    dtype: str = "float32"
    pixels: bool = False

    def dtype_of(self, job: Job) -> str:
        return "uint8" if self.pixels and job.transform is not None else self.dtype


#: [n, C, H, W] float32 to the features of those samples, in one micro-batch
LocalHead = Callable[[np.ndarray], np.ndarray]


class FeatureReader:
    """GET of features; after retries are exhausted, the object itself and the head run here.

    The local head sees the samples in the same micro-batches as the storage tier, so that a
    fallback changes nothing but the place.

    :param local_head: runs one micro-batch; calls are serialised
    :param pool: decodes for the local head
    :param input_shape: of one sample before the head
    """

    def __init__(
        self,
        client: SwiftClient,
        container: str,
        num_classes: int,
        pushdown: Pushdown,
        raw: RawReader,
        local_head: LocalHead,
        pool: Executor,
        input_shape: tuple[int, ...],
    ):
        self._client = client
        self._container = container
        self._num_classes = num_classes
        self._pushdown = pushdown
        self._raw = raw
        self._local_head = local_head
        self._pool = pool
        self._input_shape = input_shape
        self._lock = threading.Lock()
        self._head_lock = threading.Lock()
        self._failed_in_a_row = 0
        self._unavailable = False
        self._micro_batch = pushdown.micro_batch

    def expected_bytes(self, job: Job) -> int:
        samples = job.count if job.count is not None else 128
        width = ARRAYS[self._pushdown.dtype_of(job)].itemsize
        return samples * self._pushdown.cut_bytes * width // ARRAYS["float32"].itemsize

    def read(self, job: Job, sleep) -> ShardSamples:
        if self._unavailable:
            return self._fall_back(job, sleep)
        try:
            result = self._features(job, sleep)
        except HapiError as error:
            if self._pushdown.required or not falls_back(error):
                raise
            with self._lock:
                self._failed_in_a_row += 1
                self._unavailable = isinstance(error, PushdownUnavailable)
            return self._fall_back(job, sleep)
        with self._lock:
            self._failed_in_a_row = 0
        return result

    def _features(self, job: Job, sleep) -> ShardSamples:
        shard, where = job.shard, self._raw.where(job.shard)
        parts: list[tuple[Features, FeatureStats]] = []
        for samples in self._ranges(job):
            parts.append(self._request(job, samples, sleep))
            _check_count(shard, parts[-1][1].total, where)
        keys = tuple(key for features, _ in parts for key in features.keys)
        labels = np.concatenate([features.label for features, _ in parts])
        storage: dict[str, float] = {}
        for _, stats in parts:
            for step, seconds in stats.timings.items():
                storage[step] = storage.get(step, 0.0) + seconds
            if stats.micro_batch is not None:
                self._micro_batch = stats.micro_batch
        return ShardSamples(
            PackedRows(tuple(features.packed for features, _ in parts), job.transform, where),
            keys,
            label_array(labels, keys, shard, where, self._num_classes),
            bytes_received=sum(stats.bytes for _, stats in parts),
            storage=storage,
            cut=self._pushdown.cut,
            times=tuple(stats.times for _, stats in parts),
            first=_first(job),
        )

    def _ranges(self, job: Job) -> list[SampleRange | None]:
        """Several requests where one answer would be larger than a node may send."""
        if job.count is None:
            return [None]
        most = max(1, self._raw.limits.max_output_bytes // self._pushdown.cut_bytes)
        if job.count <= most:
            return [job.samples]
        begin = _first(job)
        end = begin + job.count
        return [
            SampleRange(first, min(first + most, end) - 1) for first in range(begin, end, most)
        ]

    def _request(self, job: Job, samples: SampleRange | None, sleep):
        request = FeatureRequest(
            model=self._pushdown.model,
            split=self._pushdown.cut,
            transform=job.transform,
            samples=samples,
            dtype=self._pushdown.dtype_of(job),
            batch_size=self._pushdown.micro_batch,
            encoding=self._pushdown.encoding,
        )
        return get_features(
            self._client,
            self._container,
            job.shard.name,
            request,
            if_match=job.shard.etag,
            model_container=self._pushdown.model_container,
            limits=self._raw.limits,
            attempts=1 if self._failed_in_a_row >= _PATIENCE else None,
            sleep=sleep,
        )

    def _fall_back(self, job: Job, sleep) -> ShardSamples:
        raw = self._raw.read(job, sleep)
        parts = []
        for samples in self._ranges(job):
            first, last = (0, len(raw) - 1)
            if samples is not None:
                first, last = samples.first - raw.first, samples.last - raw.first
            for start in range(first, last + 1, self._micro_batch):
                stop = min(start + self._micro_batch, last + 1)
                batch = np.empty((stop - start, *self._input_shape), dtype=np.float32)
                list(self._pool.map(raw.rows.load, range(start, stop), batch))
                with self._head_lock, self._raw.timings.measure("fallback_head", RECEIVE):
                    parts.append(self._as_sent(self._local_head(batch), raw, start))
        return ShardSamples(
            ArrayRows(tuple(parts), self._raw.where(job.shard)),
            raw.keys,
            raw.labels,
            bytes_received=raw.bytes_received,
            fallback=True,
            cut=self._pushdown.cut,
            times=raw.times,
            first=raw.first,
        )

    def _as_sent(self, features: np.ndarray, raw: ShardSamples, first: int) -> np.ndarray:
        """What would have come from the storage tier: rounded as there."""
        dtype = self._pushdown.dtype
        if dtype not in LOSSY:
            return features
        packed, bad = pack(features, dtype)
        if bad:
            key = raw.keys[first + bad[0]]
            raise DtypeOverflow(f"sample {key!r}: features do not fit into {dtype}", key=key)
        return unpack(packed)


def falls_back(error: HapiError) -> bool:
    """Whether reading the object itself may help where asking for features did not.

    Not for what is wrong with the request, the rights or the data: the raw read would fail too,
    or hide it.
    """
    if isinstance(error, Stopped):
        return False
    return error.retryable or error.status >= 500 or isinstance(error, PushdownUnavailable)
