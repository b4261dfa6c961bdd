"""A made-up world for the chooser: true demands that it does not know, and noisy observations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from hapi_compute.plan.choice import Chooser, Observed
from hapi_compute.plan.costs import Demand, Setting, stages

SETTING = Setting(
    batch=16, shard=8, in_flight=2, window=4, iterations=100, epochs=5, cpus=1, decoders=1
)


def network(rng: np.random.Generator, cuts: int = 6) -> dict[str, Demand]:
    """Raw, and cuts that get smaller; seconds and bytes as on small machines."""
    frozen = 10 ** rng.uniform(-2.5, -1.0)
    decode = 10 ** rng.uniform(-2.7, -2.0)
    raw = 100_000.0
    train = frozen * rng.uniform(0.001, 0.3)
    found = {
        "raw": Demand(0.0, 0.01, raw, 0.0005, decode, frozen + train),
    }
    share, size = 0.0, 10 ** rng.uniform(5.0, 5.8)
    for number in range(cuts):
        found[f"cut{number}"] = Demand(
            decode + 0.002 + share * frozen, 0.01, size, 0.0004 + 1e-9 * size, 0.0,
            (1 - share) * frozen + train,
        )  # fmt: skip
        share = 1.0 if number == cuts - 2 else min(0.98, share + rng.uniform(0.05, 0.4))
        size *= rng.uniform(0.2, 0.9)
    return found


@dataclass
class World:
    """``odd`` is what each candidate is off the model by, for reasons that no stage explains."""

    truth: dict[str, Demand]
    bandwidth: float
    noise: float
    rng: np.random.Generator
    odd: dict[str, float] = field(default_factory=dict)

    def time(self, name: str) -> float:
        found = stages(self.truth[name], SETTING, self.bandwidth)
        return found.time * self.odd.get(name, 1.0)

    @property
    def best(self) -> str:
        return min(self.truth, key=self.time)

    def regret(self, name: str) -> float:
        return self.time(name) / self.time(self.best) - 1

    def _noisy(self, value: float, part: float = 1.0) -> float:
        return value * math.exp(self.rng.normal(0, self.noise * part))

    def see(self, name: str) -> Observed:
        demand = self.truth[name]
        found = stages(demand, SETTING, self.bandwidth)
        raw = name == "raw"
        return Observed(
            time=self._noisy(self.time(name)),
            storage=None if raw else self._noisy(demand.storage),
            compute=self._noisy(demand.compute, 0.3),
            receive=self._noisy(demand.receive, 0.3),
            decode=self._noisy(demand.decode, 0.3) if raw else None,
            client=self._noisy(found.client) if found.bottleneck == "client" else None,
            bandwidth=self._noisy(self.bandwidth) if demand.bytes > 20_000 else None,
        )


def misjudged(world: World, by: float) -> dict[str, Demand]:
    """What a profile may have found: one factor on all storage, one on all computing."""
    storage, compute = np.exp(world.rng.normal(0, by, 2))
    return {
        name: replace(demand, storage=demand.storage * storage, compute=demand.compute * compute)
        for name, demand in world.truth.items()
    }


def fly(chooser: Chooser, world: World, observations: int) -> list[str]:
    """What runs after each observation."""
    found = []
    for _ in range(observations):
        name = chooser.current
        chooser.observe(name, world.see(name))
        found.append(chooser.decide().name)
    return found
