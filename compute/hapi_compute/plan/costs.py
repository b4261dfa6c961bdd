"""How long an iteration takes, as pure functions of what was measured.

An iteration is a pipeline of four stages that work at the same time: the storage tier makes
features (or reads objects), the network carries them, the client receives and decodes them and
trains. In steady state the slowest stage sets the pace. Two more bounds: the client's CPUs are
shared by its stages, and with W requests in flight no more than W shards are between asking and
having at a time. The paper's newest form (T = S + (max(S, C) + P)(N/B - 1) + P + C) has one
stage for storage and network together and adds decoding to the maximum; here they overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Setting:
    """What is the same for all candidates.

    :param batch: samples in an iteration
    :param shard: samples in a shard, on average
    :param in_flight: requests at once
    :param window: shards that must be there before the first batch can be made
    :param iterations: of one epoch
    :param cpus: CPUs of the compute tier
    :param decoders: its decoding threads
    :param shared: the storage tier computes on the same CPUs
    """

    batch: int
    shard: float
    in_flight: int
    window: int
    iterations: int
    epochs: int
    cpus: int
    decoders: int
    shared: bool = False


@dataclass(frozen=True)
class Demand:
    """What one candidate asks of the stages: seconds or bytes per sample, ``latency`` in seconds
    per request.

    :param storage: service of the storage tier, for what is computed there
    :param bytes: on the wire, all overhead included
    :param receive: CPU of receiving, checking and unpacking
    :param decode: CPU of decoding samples and copying rows
    :param compute: rest of the frozen part and the trainable part, forward, backward, optimiser
    :param threads: torch's threads while it computes
    :param slowdown: of the compute tier as a whole, by whatever else runs on it
    """

    storage: float
    latency: float
    bytes: float
    receive: float
    decode: float
    compute: float
    threads: int = 1
    slowdown: float = 1.0


@dataclass(frozen=True)
class Stages:
    """Seconds of one iteration by stage. ``client`` is what receive and compute (and storage, if
    one machine is both tiers) come to on the CPUs they share, ``flight`` what too few requests at
    a time would cost."""

    storage: float
    network: float
    receive: float
    compute: float
    client: float
    flight: float

    @property
    def time(self) -> float:
        """Of an iteration in steady state."""
        return max(self.storage, self.network, self.client, self.flight)

    @property
    def bottleneck(self) -> str:
        values = {name: getattr(self, name) for name in ("storage", "network", "client", "flight")}
        return max(values, key=values.get)

    def to_dict(self) -> dict[str, float]:
        names = ("storage", "network", "receive", "compute", "client", "flight", "time")
        return {name: getattr(self, name) for name in names}


def stages(demand: Demand, setting: Setting, bandwidth: float) -> Stages:
    """:param bandwidth: bytes per second, of all flows together"""
    b, requests = setting.batch, setting.batch / setting.shard
    network = b * demand.bytes / bandwidth
    storage = b * demand.storage
    receive = b * (demand.receive + demand.decode)
    compute = b * demand.compute
    busy = receive + compute * demand.threads + storage * setting.shared
    client = demand.slowdown * max(
        b * demand.decode / setting.decoders, compute, busy / setting.cpus
    )
    alone = demand.latency * requests + storage + network + b * demand.receive
    return Stages(storage, network, receive, compute, client, alone / setting.in_flight)


def no_overlap(found: Stages) -> float:
    """An iteration whose stages follow one another."""
    return found.storage + found.network + found.receive + found.compute


def fill(demand: Demand, setting: Setting, bandwidth: float) -> float:
    """Seconds until the first batch can be made: a window of shards, ``in_flight`` at a time."""
    found = stages(demand, setting, bandwidth)
    shards = setting.shard / setting.batch  # iterations' worth of one shard
    first = demand.latency + shards * (found.storage + found.network + found.receive)
    pace = max(found.storage, found.network, found.flight) * shards
    return first + pace * (setting.window - 1)


def run_time(demand: Demand, setting: Setting, bandwidth: float) -> float:
    """Seconds of all epochs: filling once, since reading goes on across their ends."""
    found = stages(demand, setting, bandwidth)
    steady = found.time * max(0, setting.iterations * setting.epochs - 1)
    return fill(demand, setting, bandwidth) + steady + found.compute


@dataclass(frozen=True)
class Correction:
    """Factors on what was measured at first, learnt from the stages of whatever runs.

    :param storage: on the storage tier's service where it computes
    :param compute: on the compute tier's computing
    :param receive: on receiving
    :param decode: on decoding
    :param client: on all that the compute tier does, by whatever else runs there
    """

    storage: float = 1.0
    compute: float = 1.0
    receive: float = 1.0
    decode: float = 1.0
    client: float = 1.0

    def apply(self, demand: Demand) -> Demand:
        return replace(
            demand,
            storage=demand.storage * self.storage,
            compute=demand.compute * self.compute,
            receive=demand.receive * self.receive,
            decode=demand.decode * self.decode,
            slowdown=demand.slowdown * self.client,
        )
