"""A driver with a real controller and real threads, whose networks are plain functions."""

from __future__ import annotations

import asyncio
import math
import threading
from pathlib import Path

import numpy as np
import torch

from swift_hapi.engine.control import (
    ControlConfig,
    Controller,
    DeviceSpec,
    LaneKey,
    LaneSpec,
    Ticket,
)
from swift_hapi.engine.device import Device
from swift_hapi.engine.driver import Driver
from swift_hapi.engine.job import Job, Work
from swift_hapi.engine.lane import Lane
from swift_hapi.engine.model_files import OPERATOR, ModelFile
from swift_hapi.engine.timing import Spent
from swift_hapi.engine.workers import Workers
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.failures import Abandoned
from swift_hapi.protocol.limits import Limits
from swift_hapi.samples.shard import RawSample
from tests.unit.engine.conftest import npy

SHAPE = (1, 4, 4)
FLOAT = np.dtype(np.float32)
WEIGHTS = 1000
CUT = Cut(1, "x", (1,), 4, True)


class Networks:
    """Stands for the loaded weights: a function per digest. ``order`` has the sizes and digests of
    all that ran."""

    def __init__(self):
        self.loaded: set[str] = set()
        self.order: list[tuple[str, int]] = []
        self.missing: set[str] = set()
        self.broken: dict[str, Exception] = {}
        self.most = 1 << 30
        self.gate: threading.Event | None = None
        self.running = threading.Event()
        self.given_up = 0
        #: digests whose runs go on, node after node, until this is set
        self.endless: dict[str, threading.Event] = {}

    def __contains__(self, digest: str) -> bool:
        return digest in self.loaded

    async def head(self, file: ModelFile, cut: Cut):
        digest = f"sha256:{file.hex}"
        if digest in self.missing:
            raise FileNotFoundError(file.path)
        self.loaded.add(digest)

        def run(batch: torch.Tensor, before) -> torch.Tensor:
            self.running.set()
            if self.gate is not None:
                assert self.gate.wait(60)
            try:
                before(0)
                while (end := self.endless.get(digest)) and not end.wait(0.001):
                    before(0)
            except Abandoned:
                self.given_up += 1
                raise
            if digest in self.broken:
                raise self.broken[digest]
            if len(batch) > self.most:
                raise RuntimeError("can't allocate memory: you tried to allocate 5 bytes")
            self.order.append((file.hex, len(batch)))
            return batch.mean((1, 2, 3))[:, None]

        return run

    def drop(self, digest: str) -> None:
        self.loaded.discard(digest)


def lane_of(hex_: str = "a", most: int = 4, **values) -> Lane:
    values = {"workspace_bytes": 0, "activation_bytes": 10, "decoded_bytes": 64, **values}
    spec = LaneSpec(LaneKey(f"sha256:{hex_}", "x", SHAPE), WEIGHTS, b_max=most, **values)
    return Lane(spec, ModelFile(hex_, "", WEIGHTS, Path("/none"), OPERATOR), CUT)


def job_of(name: str, values, account: str = "") -> Job:
    """A request for one sample of each value: its features are the values again."""
    samples = [
        RawSample(i, str(i), -1, "tensor", memoryview(npy(np.full(SHAPE, v, np.float32))))
        for i, v in enumerate(values)
    ]
    work = Work(samples, None, Limits(), SHAPE, FLOAT, (1,), FLOAT, False)
    return Job(name, account or name, work, Spent())


class World:
    """A driver, and requests for it."""

    def __init__(
        self, workers: Workers, budget: int = 100_000, patience: float = math.inf, **config
    ):
        self.networks = Networks()
        control = ControlConfig(**{"depth": 2, "batch_wait": 0.0, **config})
        self.driver = Driver(
            Controller([DeviceSpec("cpu", budget)], control),
            workers,
            Device("cpu"),
            self.networks,
            patience=patience,
        )

    @property
    def snapshot(self) -> dict:
        return self.driver.controller.snapshot()[0]

    async def ask(
        self, name: str, values, lane: Lane | None = None, account: str = "", size: int = 100
    ) -> np.ndarray:
        """What the feature call does, from admission to departure."""
        try:
            await self.driver.admit(Ticket(name, account or name, size), 5.0)
            job = job_of(name, values, account)
            result = await self.driver.run(job, lane or lane_of(), 20 * len(values))
            self.driver.release_input(name)
            return result.features.ravel()
        finally:
            self.driver.depart(name)


def story(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))
