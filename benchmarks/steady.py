"""One way to split, measured: seconds of an iteration in steady state, and of its stages."""

from __future__ import annotations

import itertools
import math
import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from benchmarks.hosts import tier_cores
from benchmarks.workload import Network
from hapi_compute.data.batches import gather
from hapi_compute.data.routing import Router
from hapi_compute.data.windows import Layout, training_windows
from hapi_compute.plan.candidates import Candidate
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.occupancy import COMPUTE, FETCH, NETWORK, STORAGE
from hapi_compute.train.config import TrainConfig, training_transform
from hapi_compute.train.optim import build_optimizer
from hapi_compute.train.pipeline import Pipeline, decode_pool
from hapi_compute.train.progress import Progress
from hapi_compute.train.setup import Parts, prepare
from hapi_compute.train.task import TransferTask, step_seed
from hapi_compute.train.threads import shared_cpus
from hapi_compute.train.upload_model import ensure_uploaded
from swift_hapi.graph.allocator import keep_freed_memory

#: an iteration takes part in the figure once so many were left out
_FILL = 2


def config_of(network: Network, dataset: str, batch: int, **options) -> TrainConfig:
    """Options that all runs of a benchmark have in common."""
    values = {
        "model": network.model,
        "weights": "random:1",
        "freeze_at": network.freeze_at,
        "transform": network.transform,
        "batch_size": batch,
        "optimizer": "sgd",
        "lr": 1e-3,
        "threads": 1,
        "decode_threads": 1,
        # Small windows, so that few iterations are many windows.
        "window": 2,
        "prefetch": 4,
    }
    return TrainConfig(dataset, **values | options)


@dataclass(frozen=True)
class Steady:
    """Seconds per iteration: ``time`` of the whole, and how long each stage had anything to do.

    ``coming`` is while any shard was on its way; ``decode`` is CPU. ``storage_core`` and
    ``compute_core`` are the busy seconds of the core that each tier has to itself, whoever used
    them.
    """

    time: float
    storage: float
    network: float
    coming: float
    compute: float
    decode: float
    storage_core: float
    compute_core: float
    iterations: int
    bytes: float

    def bound(self, bandwidth: float | None) -> float:
        """The longest stage by what it must do, not by when it was waited for: no overlap can be
        better."""
        network = 0.0 if bandwidth is None else self.bytes / bandwidth
        return max(self.storage_core, network, self.compute_core)


@dataclass(frozen=True)
class _Mark:
    """Sums up to a moment."""

    at: float
    batches: int
    sums: dict[str, float]

    def until(self, later: _Mark) -> Steady:
        count = later.batches - self.batches
        parts = {name: (later.sums[name] - start) / count for name, start in self.sums.items()}
        return Steady(time=(later.at - self.at) / count, iterations=count, **parts)


class Rig:
    """A network on the compute tier with a dataset on the storage tier, ready to be measured."""

    def __init__(self, parts: Parts, pipeline: Pipeline):
        self.parts = parts
        self.pipeline = pipeline
        self.config = parts.config
        self.task = TransferTask(parts.extractor, parts.trainable, parts.timings)
        self.optimizer = build_optimizer(parts.config, parts.trainable)
        self.samples_per_second = math.nan

    def router(self, candidate: Candidate) -> Router:
        container = self.parts.dataset.url.container
        return Router(
            lambda route: self.pipeline.reader(container, candidate),
            candidate.name,
            self.pipeline.store.occupancy,
        )

    def measure(
        self,
        candidate: Candidate,
        *,
        iterations: int = 4,
        seconds: float = 0.6,
        longest: float = 12.0,
    ) -> Steady:
        """:param iterations: at least so many, and ``seconds``, are measured; whole windows, but
        no more of them once ``longest`` seconds are over"""
        config = self.config
        windows = [
            window
            for epoch in range(200)
            for window in training_windows(self.parts.dataset, config.seed, epoch, config.window)
        ]
        router = self.router(candidate)
        batches_ = self.pipeline.loader(
            self.parts.dataset, windows,
            lambda epoch: training_transform(config.transform, config.seed, epoch), router,
        )  # fmt: skip
        period = self.period
        with batches_ as loader:
            batches = itertools.chain.from_iterable(loader.epoch() for _ in range(200))
            start: _Mark | None = None
            begun = time.perf_counter()
            for done, batch in enumerate(batches):
                # Whole windows from arrival to arrival: batches of a window come together.
                if done and done % period == 0 and done >= _FILL:
                    mark = self._mark(done)
                    if start is None:
                        start = mark
                    else:
                        took, count = mark.at - start.at, done - start.batches
                        late = time.perf_counter() - begun > longest
                        if late or (count >= iterations and took >= seconds):
                            return start.until(mark)
                self.step(batch, done)
        raise RuntimeError("the benchmark's dataset ended")

    @property
    def period(self) -> int:
        """Batches after which windows and batches begin together again."""
        config = self.config
        window = config.window * round(self.parts.dataset.samples / len(self.parts.dataset.shards))
        return math.lcm(window, config.batch_size) // config.batch_size

    def _mark(self, batches: int) -> _Mark:
        storage, compute = busy_cores()
        moment = self.pipeline.store.occupancy.now()
        return _Mark(
            moment.at,
            batches,
            {
                "storage": moment.busy[STORAGE],
                "network": moment.busy[NETWORK],
                "coming": moment.busy[FETCH],
                "compute": moment.busy[COMPUTE],
                "decode": self.parts.timings.cpu().get("decode", 0.0),
                "storage_core": storage,
                "compute_core": compute,
                "bytes": self.pipeline.store.counters.snapshot().bytes_received,
            },
        )

    def first_losses(self, candidate: Candidate, steps: int) -> list[float]:
        """Of the run's first steps, from the weights as they are now."""
        config, container = self.config, self.parts.dataset.url.container
        self.optimizer = build_optimizer(config, self.parts.trainable)
        windows = training_windows(self.parts.dataset, config.seed, 0, config.window)
        batches = self.pipeline.loader(
            self.parts.dataset, windows,
            lambda epoch: training_transform(config.transform, config.seed, epoch),
            self.pipeline.reader(container, candidate),
        )  # fmt: skip
        with batches as loader:
            return [
                self.step(batch, number)
                for number, batch in itertools.islice(enumerate(loader.epoch()), steps)
            ]

    def serial(self, candidate: Candidate, iterations: int = 3) -> float:
        """Seconds of an iteration when nothing overlaps: shards are read, then trained on."""
        config, container = self.config, self.parts.dataset.url.container
        windows = training_windows(self.parts.dataset, config.seed, 0, 1)
        layout = Layout(config.batch_size)
        jobs = list(
            layout.jobs(windows, lambda epoch: training_transform(config.transform, 0, epoch))
        )
        reader, waiting, taken = self.pipeline.reader(container, candidate), [], 0
        never = threading.Event()
        shapes = self.pipeline.shapes()
        found = []
        for _ in range(iterations + 1):
            started = time.perf_counter()
            while len(waiting) < config.batch_size:
                shard = reader.read(jobs[taken % len(jobs)], never.wait)
                waiting += [(shard, row) for row in range(len(shard))]
                taken += 1
            places, waiting = waiting[: config.batch_size], waiting[config.batch_size :]
            pending = gather(places, shapes.__getitem__, self.pipeline.pool)
            self.step(pending.batch(), 0)
            found.append(time.perf_counter() - started)
        return statistics.mean(found[1:])

    def time_whole_network(self) -> None:
        """Measure :attr:`samples_per_second`: decoding, all layers and the training step on the
        compute tier, the link unlimited."""
        found = self.measure(Candidate(None), seconds=1.5)
        self.samples_per_second = self.config.batch_size / (found.compute + found.decode)

    def step(self, batch, number: int) -> float:
        """One optimiser step; the loss."""
        outcome = self.task.loss(batch, step_seed(0, number))
        loss = outcome.loss / outcome.weight
        value = loss.item()
        with self.parts.timings.measure("trainable", COMPUTE):
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
        return value


def busy_cores() -> tuple[float, float]:
    """Busy seconds since boot of the storage tier's and of the compute tier's core."""
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    with open("/proc/stat") as stat:
        for line in stat:
            name, *values = line.split()
            if name.startswith("cpu"):
                user, nice, system, _idle, _iowait, irq, softirq = map(int, values[:7])
                found[name] = (user + nice + system + irq + softirq) / tick
    storage, compute = tier_cores()
    return found[f"cpu{storage}"], found[f"cpu{compute}"]


@contextmanager
def rig(config: TrainConfig, store: SwiftClient) -> Iterator[Rig]:
    """Load the model, upload its frozen part."""
    keep_freed_memory()
    parts = prepare(config, store)
    container, _ = ensure_uploaded(parts.extractor, store)
    torch.set_num_threads(1)
    with shared_cpus(parts.config, raw=False), decode_pool(parts.config) as pool:
        pipeline = Pipeline(
            parts.config, store, parts.extractor, parts.input_shape, container,
            parts.num_classes, parts.timings, pool,
        )  # fmt: skip
        yield Rig(parts, pipeline)


class Silent(Progress):
    """Nothing is told."""
