"""An embedded cluster for measurements: Swift and clients on one core, the engine on another."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load.client import Account, Target, engine_status
from benchmarks.photos import photo, tar
from swift_hapi.cluster import ClusterConfig, EmbeddedCluster, authenticate

if TYPE_CHECKING:
    from swift_hapi.engine.sizing import Footprint

SIDE = 224
TRANSFORM = f"resize={SIDE + 32}, crop={SIDE}, mean=(0.485 0.456 0.406), std=(0.229 0.224 0.225)"
#: network -> where it is frozen
NETWORKS = {
    "resnet18": "flatten",
    "alexnet": "flatten",
    "mobilenet_v3_large": "flatten",
    "timm/tf_efficientnet_lite0": "global_pool_flatten",
}
READY_TIMEOUT = 120.0
MEASURE_TIMEOUT = 300.0


@dataclass(frozen=True)
class Network:
    """One extractor: file, cut, and what a micro-batch of it takes."""

    name: str
    path: Path
    digest: str
    cut: str
    weight_bytes: int
    footprint: Footprint

    def need(self, batch: int) -> int:
        """Bytes of a full micro-batch in the network while another one is decoded."""
        sample = self.footprint.activations + 2 * self.footprint.input
        return self.weight_bytes + self.footprint.fixed + batch * sample


def make_networks(directory: Path) -> dict[str, Network]:
    """Extractor files with random weights."""
    import torch

    from hapi_compute.models import load_model
    from swift_hapi.engine.loaded import footprint_of
    from swift_hapi.graph.extractor import save_extractor
    from swift_hapi.graph.split import make_extractor

    torch.set_num_threads(1)
    made = {}
    for name, freeze_at in NETWORKS.items():
        short = name.rpartition("/")[2]
        module = load_model(name, "random:0").module.eval()
        extractor = make_extractor(module, freeze_at, (3, SIDE, SIDE))
        path = directory / f"{short}.safetensors"
        digest = save_extractor(extractor, path)
        cut = extractor.cuts[-1]
        footprint = footprint_of(extractor, cut, extractor.input_shape)
        made[short] = Network(
            short, path, digest, cut.name, extractor.weight_bytes, footprint
        )
    return made


def cores() -> tuple[int, int]:
    """(for Swift and clients, for the engine): the same one where there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


class Setting:
    """A running cluster with networks and shards."""

    def __init__(self, cluster: EmbeddedCluster, networks: dict[str, Network]):
        self.cluster = cluster
        self.networks = networks
        self.accounts = [self._log_in(index) for index in (0, 1)]
        self._base = (cluster.dir / "etc" / "engine.conf").read_text()
        models = cluster.dir / "engine" / "models"
        for network in networks.values():
            (models / network.path.name).write_bytes(network.path.read_bytes())
        for account in self.accounts:
            account.put("shards")

    def _log_in(self, index: int) -> Account:
        user = self.cluster.config.users[index]
        return Account(*authenticate(self.cluster.auth_url, user.name, user.key))

    @property
    def engine_pid(self) -> int:
        return self.cluster.pids["engine"]

    def engine(self) -> dict:
        return engine_status(self.cluster.engine_socket)

    def configure(self, **options: object) -> None:
        """Start the engine anew with these options beside those for all cases."""
        lines = [line for line in self._base.splitlines() if line.split(" = ")[0] not in options]
        lines += [f"{name} = {value}" for name, value in options.items()]
        (self.cluster.dir / "etc" / "engine.conf").write_text("\n".join(lines) + "\n")
        previous = self.engine_pid
        # Whatever it still has under way is of no use to anybody.
        os.kill(previous, signal.SIGKILL)
        self.wait_ready(previous)

    def wait_ready(self, previous: int | None = None) -> float:
        """Seconds until an engine other than ``previous`` is ready."""
        began = time.monotonic()
        while time.monotonic() < began + READY_TIMEOUT:
            try:
                status = self.engine()
                if status["ready"] and status["pid"] != previous:
                    return time.monotonic() - began
            except OSError:
                pass
            time.sleep(0.05)
        raise RuntimeError("the engine is not ready")

    def wait_idle(self) -> None:
        until = time.monotonic() + READY_TIMEOUT
        while time.monotonic() < until:
            status = self.engine()
            if not status["queue"]["in_flight"] and not status["queue"]["waiting"]:
                return
            time.sleep(0.05)
        raise RuntimeError("the engine does not become idle")

    def wait_measured(self) -> None:
        """Until the engine has measured the memory of every network that it knows."""
        until = time.monotonic() + MEASURE_TIMEOUT
        while time.monotonic() < until:
            models = self.engine()["models"]
            if models["measured"] >= len(self.networks):
                return
            time.sleep(0.2)
        raise RuntimeError("the networks' memory is not measured")

    def shard(self, images: int, number: int = 0, account: int = 0) -> str:
        """Store a shard of photos; its name."""
        name = f"{images}-{number}.tar"
        first = 1000 * number
        body = tar({f"{i:04d}.jpg": photo(first + i) for i in range(images)})
        self.accounts[account].put("shards", name, body=body)
        return name

    def target(self, network: str, name: str, account: int = 0, **headers: str) -> Target:
        known = self.networks[network]
        return Target(
            self.accounts[account],
            ("shards", name),
            {
                "X-Hapi-Model": known.digest,
                "X-Hapi-Split": known.cut,
                "X-Hapi-Transform": TRANSFORM,
                **headers,
            },
        )


@contextmanager
def setting(directory: Path, networks: dict[str, Network]) -> Iterator[Setting]:
    """A cluster on the first core, with its engine on the last one."""
    swift, engine = cores()
    os.sched_setaffinity(0, {swift})
    config = ClusterConfig(
        dir=directory / "cluster",
        engine_conf=(
            ("engine_cpus", f"cpus:{engine}"),
            ("decode_threads", "1"),
            ("memory_budget", "4 GiB"),
            ("queue_depth", "256"),
            ("account_concurrency", "256"),
        ),
    )
    with EmbeddedCluster(config) as cluster:
        yield Setting(cluster, networks)


def memory(pid: int, field: str = "VmHWM") -> int:
    """A line of /proc/pid/status, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(field)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
