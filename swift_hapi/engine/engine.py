"""The parts of one running engine, put together; and its warm-up."""

from __future__ import annotations

import functools
import logging
import os
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch

from swift_hapi.engine.accounts import AccountLimits, Ledger, Usage
from swift_hapi.engine.calibration import Calibrator
from swift_hapi.engine.compute import Cost
from swift_hapi.engine.config import EngineConfig
from swift_hapi.engine.control import ControlConfig, Controller, DeviceSpec, LaneKey
from swift_hapi.engine.device import Device
from swift_hapi.engine.driver import Driver
from swift_hapi.engine.gauges import watch_engine
from swift_hapi.engine.metrics import Metrics
from swift_hapi.engine.model_files import CachedModels, ModelFile, ModelFiles, OperatorModels
from swift_hapi.engine.model_memory import ModelMemory
from swift_hapi.engine.sizing import DEPTH, BatchLimits
from swift_hapi.engine.warmup import first_forward, tiny_head
from swift_hapi.engine.weights import Weights
from swift_hapi.engine.workers import Workers, call
from swift_hapi.graph.caps import Caps
from swift_hapi.graph.extractor import load_extractor
from swift_hapi.graph.heap import Heap
from swift_hapi.protocol.errors import EngineBusy
from swift_hapi.samples import numerics

LOG = logging.getLogger(__name__)
VERSION = version("swift-hapi")
_TOP_ACCOUNTS = 20
_WARMING = 2
#: A micro-batch in the network makes way for others after so many seconds, or times batch_time.
_PATIENCE, _TIMES = 2.0, 5


def numerics_version() -> str:
    """``X-Hapi-Numerics``: the versions that decide a feature's bits."""
    return f"swift-hapi={VERSION} torch={torch.__version__} {numerics.versions()}"


class Engine:
    """Everything that the HTTP endpoints share. ``ready`` says whether the warm-up is over.

    :param worker: which of ``config.workers`` processes this is
    :raises ValueError: the device asked for is not there
    """

    def __init__(self, config: EngineConfig, worker: int = 0):
        self.config = config
        self.worker = worker
        self.limits = config.limits
        self.batches = BatchLimits(config.batch_min, config.batch_max, config.fixed_batch)
        self.numerics = numerics_version()
        self.started = time.time()
        self.ready = False
        self.device = Device(config.device, worker)
        self.workers = Workers(config.engine_cpus.threads, config.decoders)
        self.metrics = Metrics(config.account_metrics)
        self.usage = Ledger()
        caps = Caps(flops=config.max_sample_gflops * 1e9)
        self.weights = Weights(
            self.workers, self.device, functools.partial(load_extractor, caps=caps)
        )
        self.budget = self._budget()
        self.heap = Heap(self.budget)
        self.controller = self._controller()
        self.driver = Driver(
            self.controller,
            self.workers,
            self.device,
            self.weights,
            self._observe,
            patience=max(_PATIENCE, _TIMES * config.batch_time),
        )
        self.accounts = AccountLimits(
            config.account_concurrency, config.account_rate, self.driver.retry_after
        )
        self.files = ModelFiles(
            OperatorModels(config.model_dir),
            CachedModels(config.cache_dir, config.max_cache_bytes),
        )
        self.calibrator = self._calibrator()
        self.memory = ModelMemory(
            self._largest_model,
            self.workers,
            self.weights,
            self.driver,
            self.calibrator.learnt,
        )
        watch_engine(self)
        self._warn_of_contradictions()

    def _budget(self) -> int:
        config = self.config
        # On the host all processes draw on one memory, CUDA devices have each their own.
        sharers = config.workers if self.device.kind == "cpu" else 1
        return config.memory_budget.divided(sharers).resolve(self.device.memory)

    @property
    def _largest_model(self) -> int:
        """Objects have their share of the budget for themselves."""
        return self.budget - self.controller.devices[0].ledger.door.cap

    def _calibrator(self) -> Calibrator:
        config = self.config

        def file_of(digest: str) -> Path | None:
            file = self.files.find(digest)
            return None if file is None else file.path

        return Calibrator(
            config.cache_dir,
            self.numerics,
            config.engine_cpus.threads,
            self.budget // 2,
            self.driver,
            file_of,
            busy=lambda: bool(self.controller.devices[0].ledger.door.holders),
            measures=config.measure_memory and self.device.kind == "cpu" and self.worker == 0,
        )

    def _controller(self) -> Controller:
        config = self.config
        control = ControlConfig(
            depth=DEPTH,
            batch_wait=config.batch_wait,
            batch_seconds=config.batch_time,
            places=config.queue_depth,
            room=config.queue_depth,
        )
        return Controller([DeviceSpec(self.device.name, self.budget)], control)

    def _observe(self, key: LaneKey, size: int, cost: Cost) -> None:
        self.metrics.micro_batch.observe(size)
        self.metrics.micro_batch_seconds.observe(cost.infer)

    def _warn_of_contradictions(self) -> None:
        """Limits that memory_budget makes unreachable are legal, but rarely meant."""
        config, ledger = self.config, self.controller.devices[0].ledger
        if config.max_object_bytes > ledger.door.cap:
            LOG.warning("memory_budget is too small for an object of max_object_bytes")
        if config.max_output_bytes > self.budget - ledger.door.cap:
            LOG.warning("memory_budget is too small for a response of max_output_bytes")
        if config.max_model_bytes > min(self._largest_model, config.max_cache_bytes):
            LOG.warning("a model of max_model_bytes fits not into cache or memory")

    def charge(self, account: str, usage: Usage) -> None:
        """``account`` has used so much, more than before."""
        self.usage.charge(account, usage)
        self.metrics.charge(account, usage)

    def check_ready(self) -> None:
        """:raises EngineBusy: the warm-up is not over"""
        if not self.ready:
            raise EngineBusy("the engine warms up", retry_after=_WARMING)

    async def warm_up(self) -> None:
        """Open the model directories, use torch once; the engine is ready then."""
        await call(self.workers.io, self.files.cached.open)
        await self.rescan()
        head = await call(self.workers.load, tiny_head, self.device)
        await call(self.workers.infer, first_forward, self.device, head)
        if self.device.kind == "cpu":
            self.device.heap = self.heap
            self.heap.settle()
        self.ready = True
        LOG.info("ready: %s, %d bytes on %s", self.numerics, self.budget, self.device.name)

    async def rescan(self) -> None:
        """Read the operator's models anew."""
        await call(self.workers.io, self.files.operator.scan)

    def lose(self, file: ModelFile) -> None:
        """A model's file is gone or damaged: whoever has it may send it again."""
        self.files.cached.drop(file.hex)
        self.memory.forget(file.hex)

    def model_label(self, digest: str) -> str:
        """The operator's name of a model, or its digest, shortened."""
        return self.files.operator.names.get(digest, digest[:19])

    def status(self) -> dict:
        """What ``/v1/status`` shows."""
        (device,) = self.controller.snapshot()
        return {
            "version": VERSION,
            "numerics": self.numerics,
            "pid": os.getpid(),
            "worker": self.worker,
            "uptime": round(time.time() - self.started, 3),
            "ready": self.ready,
            "models": {
                "operator": {
                    name: f"sha256:{file.hex}"
                    for name, file in sorted(self.files.operator.by_name.items())
                },
                "known": self.memory.digests(),
                "measured": self.memory.measured,
                "loaded": self.weights.digests(),
                "loaded_bytes": device["weight_bytes"],
                "loads": self.weights.loads,
                "evictions": self.weights.evictions,
                "cached": len(self.files.cached),
                "cached_bytes": self.files.cached.nbytes,
            },
            "queue": {
                "waiting": device["waiting_to_be_admitted"],
                "in_flight": device["admitted"],
                "places": self.config.queue_depth,
                "waiting_for_output": device["waiting_for_output"],
                "expected_seconds": device["expected_seconds"],
            },
            "memory": {
                key: device[key]
                for key in (
                    "budget_bytes",
                    "used_bytes",
                    "input_bytes",
                    "input_bytes_capacity",
                    "output_bytes",
                    "weight_bytes",
                    "reserved_bytes",
                )
            },
            "device": device["device"],
            "threads": {"network": self.workers.cpus, "decode": self.workers.decoders},
            "lanes": [
                lane | {"model": self.model_label(lane["digest"])} for lane in device["lanes"]
            ],
            "allocation_failures": self.driver.failures,
            "heap_trims": self.heap.trims,
            "accounts": {
                account: asdict(usage)
                for account, usage in self.usage.top(_TOP_ACCOUNTS).items()
            },
            "counters": self.metrics.counters(),
        }
