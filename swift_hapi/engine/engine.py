"""The parts of one running engine, put together; and its warm-up."""

from __future__ import annotations

import logging
import os
import time
from importlib.metadata import version

import torch

from swift_hapi.engine import sizing
from swift_hapi.engine.admission import Admission, Shares
from swift_hapi.engine.config import EngineConfig
from swift_hapi.engine.metrics import Metrics
from swift_hapi.engine.model_files import CachedModels, ModelFiles, OperatorModels
from swift_hapi.engine.model_memory import ModelMemory
from swift_hapi.engine.warmup import first_forward, tiny_head
from swift_hapi.engine.workers import Workers, call
from swift_hapi.protocol.errors import EngineBusy
from swift_hapi.samples import numerics

LOG = logging.getLogger(__name__)
VERSION = version("swift-hapi")


def numerics_version() -> str:
    """``X-Hapi-Numerics``: the versions that decide a feature's bits."""
    return f"swift-hapi={VERSION} torch={torch.__version__} {numerics.versions()}"


class Engine:
    """Everything that the HTTP endpoints share. ``ready`` says whether the warm-up is over."""

    def __init__(self, config: EngineConfig):
        self.config = config
        self.limits = config.limits
        self.numerics = numerics_version()
        self.started = time.time()
        self.ready = False
        self.workers = Workers(config.threads("engine_cpus"), config.threads("decode_threads"))
        self.admission = Admission(
            config.queue_depth,
            config.account_concurrency,
            Shares.of(config.memory_budget),
            config.retry_after,
        )
        self.files = ModelFiles(
            OperatorModels(config.model_dir),
            CachedModels(config.cache_dir, config.max_cache_bytes),
        )
        self.memory = ModelMemory(config.max_loaded_bytes, self.workers, config.retry_after)
        self.metrics = Metrics()
        self._watch()
        self._warn_of_contradictions()

    def _warn_of_contradictions(self) -> None:
        """Limits that memory_budget makes unreachable are legal, but rarely meant."""
        config, shares = self.config, self.admission.shares
        if sizing.OBJECT_COPIES * config.max_object_bytes > shares.objects:
            LOG.warning("memory_budget is too small for an object of max_object_bytes")
        if sizing.OUTPUT_COPIES * config.max_output_bytes > shares.work:
            LOG.warning("memory_budget is too small for a response of max_output_bytes")
        if config.max_model_bytes > min(config.max_loaded_bytes, config.max_cache_bytes):
            LOG.warning("a model of max_model_bytes fits not into cache or memory")

    def _watch(self) -> None:
        watch, admission = self.metrics.watch, self.admission
        watch("queue_depth", "Requests waiting to be admitted", lambda: admission.queue.waiting)
        watch("in_flight", "Requests admitted and not yet answered", lambda: admission.admitted)
        watch("object_bytes", "Memory granted to objects", lambda: admission.queue.used[1])
        watch("work_bytes", "Memory granted to work", lambda: admission.work.used[0])
        watch("models_loaded", "Extractors in memory", lambda: len(self.memory))
        watch("models_loaded_bytes", "Weights in memory", lambda: self.memory.nbytes)
        watch("models_cached", "Uploaded extractor files on disk", lambda: len(self.files.cached))
        watch("models_cached_bytes", "Their size", lambda: self.files.cached.nbytes)
        watch("ready", "1 once the warm-up is over", lambda: self.ready)

    def check_ready(self) -> None:
        """:raises EngineBusy: the warm-up is not over"""
        if not self.ready:
            raise EngineBusy("the engine warms up", retry_after=self.config.retry_after)

    async def warm_up(self) -> None:
        """Open the model directories, use torch once; the engine is ready then."""
        await call(self.workers.io, self.files.cached.open)
        await self.rescan()
        head = await call(self.workers.load, tiny_head)
        await call(self.workers.infer, first_forward, head)
        self.ready = True
        LOG.info("ready: %s", self.numerics)

    async def rescan(self) -> None:
        """Read the operator's models anew."""
        await call(self.workers.io, self.files.operator.scan)

    def status(self) -> dict:
        """What ``/v1/status`` shows."""
        admission = self.admission
        return {
            "version": VERSION,
            "numerics": self.numerics,
            "pid": os.getpid(),
            "uptime": round(time.time() - self.started, 3),
            "ready": self.ready,
            "models": {
                "operator": {
                    name: f"sha256:{file.hex}"
                    for name, file in sorted(self.files.operator.by_name.items())
                },
                "loaded": self.memory.digests(),
                "loaded_bytes": self.memory.nbytes,
                "cached": len(self.files.cached),
                "cached_bytes": self.files.cached.nbytes,
            },
            "queue": {
                "waiting": admission.queue.waiting,
                "in_flight": admission.admitted,
                "places": admission.queue.capacity[0],
                "object_bytes": admission.queue.used[1],
                "object_bytes_capacity": admission.queue.capacity[1],
                "work_bytes": admission.work.used[0],
                "work_bytes_capacity": admission.work.capacity[0],
                "work_waiting": admission.work.waiting,
            },
            "counters": self.metrics.counters(),
        }
