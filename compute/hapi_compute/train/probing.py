"""The first shards of a run, read so that they tell how fast everything is.

What is read and computed here is kept for the run: the same samples come to training as features
at the freeze point, or as the storage tier has answered.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from hapi_compute.data.routing import Router
from hapi_compute.data.rows import ArrayRows
from hapi_compute.data.shards import Job, Reader, ShardSamples
from hapi_compute.plan.candidates import Candidate
from hapi_compute.plan.demands import ObjectProfile, StorageProfile, squeezed
from hapi_compute.plan.profile import (
    ComputeProfile,
    PrefixTimer,
    byte_seconds,
    decode_all,
    joined,
    normalise_seconds,
    run_batches,
    train_seconds,
)
from hapi_compute.train.config import TrainConfig
from hapi_compute.train.optim import build_optimizer
from hapi_compute.train.pipeline import Pipeline
from hapi_compute.train.precision import autocast
from swift_hapi.graph.cuts import Cut

#: samples that are enough to time a batch, however large batches are
_ENOUGH = 32
#: features of larger shards are not kept: all of it would have to be computed before training
_MOST = 512


@dataclass(frozen=True)
class Probed:
    """``seconds`` of wall clock that all this took."""

    compute: ComputeProfile
    objects: ObjectProfile
    storage: StorageProfile | None
    seconds: float
    samples: int


@dataclass(frozen=True)
class _Read:
    job: Job
    samples: ShardSamples
    cpu: float

    @property
    def waited(self) -> float:
        return sum(first - started for started, first, _ in self.samples.times)

    @property
    def sent(self) -> float:
        return sum(last - first for _, first, last in self.samples.times)


def probe_compute(
    pipeline: Pipeline, trainable: nn.Module, jobs: Iterator[Job], container: str, router: Router
) -> tuple[ComputeProfile, ObjectProfile]:
    """Read shards as they are, time decoding, every piece of the frozen part, and training.

    :param jobs: the run's, from the front; as many as needed are taken
    """
    config = pipeline.config
    batch = min(pipeline.own_batch, _ENOUGH)
    reads = _read(pipeline.reader(container, Candidate(None)), jobs, batch)
    device = next(trainable.parameters()).device
    squeeze = None if config.encoding == "identity" else config.dtype
    timer = PrefixTimer(pipeline.extractor.to(device), squeeze, device)
    shape = pipeline.input_shape
    decoded = [decode_all(each.samples.rows.load, len(each.samples), shape) for each in reads]
    images = joined(images for images, _ in decoded)
    kept = len(images) <= _MOST
    features = run_batches(timer, images if kept else images[: 4 * batch], batch)
    labels = np.concatenate([r.samples.labels for r in reads])
    train = train_seconds(
        trainable, lambda part: build_optimizer(config, part), features,
        labels[: len(features)], pipeline.own_batch, lambda: autocast(config.precision, device),
    )  # fmt: skip
    first = 0
    for read in reads:
        samples = read.samples
        if kept:
            rows = ArrayRows((features[first : first + len(samples)],), samples.rows.where)
            first += len(samples)
            samples = replace(samples, rows=rows, cut=pipeline.extractor.cuts[-1].name)
        router.keep(read.job, samples)
    spec = reads[0].job.transform
    compute = ComputeProfile(
        timer.prefix(),
        train,
        statistics.median(each for _, each in decoded),
        timer.squeezed,
        0.0 if spec is None else normalise_seconds(shape, spec),
    )
    count = sum(len(read.samples) for read in reads)
    size = sum(read.samples.bytes_received for read in reads)
    requests = sum(len(read.samples.times) for read in reads)
    receive = byte_seconds(images)
    objects = ObjectProfile(
        bytes=size / count,
        latency=statistics.median(read.waited for read in reads),
        request=max(0.0, sum(read.cpu for read in reads) - receive * size) / requests,
        receive=receive,
        samples=count / requests,
        bandwidth=size / max(1e-6, sum(read.sent for read in reads)),
    )
    return compute, objects


def probe_storage(
    pipeline: Pipeline,
    cut: Cut,
    jobs: Iterator[Job],
    container: str,
    router: Router,
    latency: float,
    wire: float,
) -> StorageProfile | None:
    """Have shards computed up to ``cut``, twice, because the first time the model is loaded.

    :param latency: seconds of a request that computes nothing
    :param wire: bytes of one sample's features as they travel

    :returns: None where the storage tier did not do it
    """
    candidate = pipeline.candidate(cut)
    reader = pipeline.reader(container, candidate)
    enough = min(pipeline.own_batch, _ENOUGH)
    found = []
    for _ in range(2):
        reads = _read(reader, jobs, enough)
        for read in reads:
            router.keep(read.job, read.samples)
        reads = [read for read in reads if not read.samples.fallback]
        if reads:
            found.append(_storage_profile(reads, cut, latency, wire))
    return min(found, key=lambda profile: profile.service, default=None)


def _storage_profile(reads: list[_Read], cut: Cut, latency: float, wire: float) -> StorageProfile:
    count = sum(len(read.samples) for read in reads)
    steps: dict[str, float] = {}
    for read in reads:
        for step, seconds in read.samples.storage.items():
            steps[step] = steps.get(step, 0.0) + seconds
    requests = sum(len(read.samples.times) for read in reads)
    waited = sum(read.waited for read in reads)
    service = max(
        waited - steps.get("queue", 0.0) - latency * requests,
        steps.get("infer", 0.0) + steps.get("encode", 0.0),
        1e-6,
    )
    inference = min(steps.get("infer", 0.0), service)
    size = sum(read.samples.bytes_received for read in reads)
    overhead = max(0.0, size / count - wire)
    return StorageProfile(cut.name, service / count, inference / count, overhead)


def _read(reader: Reader, jobs: Iterator[Job], enough: int) -> list[_Read]:
    """Shards, one after the other, until there are ``enough`` samples."""
    found: list[_Read] = []
    count = 0
    never = threading.Event()
    for job in jobs:
        used = time.thread_time()
        samples = reader.read(job, never.wait)
        found.append(_Read(job, samples, time.thread_time() - used))
        count += len(samples)
        if count >= enough:
            break
    return found


def probe(
    config: TrainConfig,
    pipeline: Pipeline,
    trainable: nn.Module,
    jobs: list[Job],
    container: str,
    router: Router,
    cut: Cut,
) -> Probed:
    """Both tiers and the network between them.

    :param jobs: the run's first; a part of them is read
    :param cut: to probe the storage tier at
    """
    started = time.perf_counter()
    left = iter(jobs)
    compute, objects = probe_compute(pipeline, trainable, left, container, router)
    candidate = pipeline.candidate(cut)
    wire = candidate.bytes * squeezed(candidate, compute)
    storage = probe_storage(pipeline, cut, left, container, router, objects.latency, wire)
    used = len(jobs) - sum(1 for _ in left)
    samples = sum(job.shard.samples or 0 for job in jobs[:used])
    return Probed(compute, objects, storage, time.perf_counter() - started, samples)

