"""Two hosts on one machine: a storage tier and a compute tier with a slow network between them.

Each tier is a network namespace with one core to itself; a pair of virtual interfaces joins them,
and a token bucket on the storage side's limits the rate (there is no delay: the kernels we meet
lack netem). A benchmark asks for its own program to be run on the compute tier:

    if __name__ == "__main__":
        sys.exit(run_in_two_hosts("benchmarks.example", sys.argv[1:], inside))

``inside(hosts, argv)`` runs there, with a Swift on the other side. It needs root; where that is
missing everything runs on one host, no rate is in force, and the results say so.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from hapi_compute.store.auth import Credentials
from hapi_compute.store.client import SwiftClient

PREFIX = "hapi-bench"
ENVIRONMENT, CORES = "HAPI_BENCH_HOSTS", "HAPI_BENCH_CORES"
#: the bucket holds what the link carries in so many seconds, and no less than two large packets
_BURST_SECONDS, _LEAST_BURST = 0.005, 128 << 10
_QUEUE_SECONDS = 0.05


@dataclass(frozen=True)
class Hosts:
    """The two tiers as the compute tier sees them.

    :param limited: whether rates are in force
    """

    auth_url: str
    user: str
    key: str
    namespace: str
    interface: str
    limited: bool

    def client(self) -> SwiftClient:
        return SwiftClient(Credentials(self.auth_url, self.user, self.key))

    def set_rate(self, bytes_per_second: float | None) -> None:
        """From the storage tier to the compute tier; None: no limit. Takes effect at once, for
        transfers under way too."""
        if not self.limited:
            return
        shape = _shape(bytes_per_second or 12.5e9)
        _run("tc", "-n", self.namespace, "qdisc", "replace", "dev", self.interface, "root", *shape)


def _shape(rate: float) -> list[str]:
    burst = max(_LEAST_BURST, int(rate * _BURST_SECONDS))
    latency = int(_QUEUE_SECONDS * 1000)
    return [
        "tbf", "rate", f"{int(rate * 8)}bit", "burst", f"{burst}b", "latency", f"{latency}ms",
    ]  # fmt: skip


def _run(*command: str, check: bool = True) -> subprocess.CompletedProcess:
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done


def tier_cores() -> tuple[int, int]:
    """Storage tier's and compute tier's; the same one where there is no other."""
    given = os.environ.get(CORES)
    if given is not None:
        first, second = map(int, given.split(","))
        return first, second
    mine = sorted(os.sched_getaffinity(0))
    return mine[0], mine[1 % len(mine)]


def why_not() -> str | None:
    """Why there can be no two hosts here; None when there can."""
    if os.geteuid() != 0:
        return "not root"
    for tool in ("ip", "tc", "taskset"):
        if not any(Path(d, tool).exists() for d in os.get_exec_path()):
            return f"{tool} is not installed (Debian: iproute2, util-linux)"
    done = _run("ip", "netns", "add", f"{PREFIX}-{os.getpid()}-try", check=False)
    _run("ip", "netns", "del", f"{PREFIX}-{os.getpid()}-try", check=False)
    return f"no network namespaces: {done.stderr.strip()}" if done.returncode else None


def sweep() -> None:
    """Remove namespaces of benchmarks that were killed."""
    for line in _run("ip", "netns", "list").stdout.splitlines():
        name = line.split()[0]
        parts = name.removeprefix(f"{PREFIX}-").split("-")
        if name.startswith(f"{PREFIX}-") and not Path(f"/proc/{parts[0]}").exists():
            _run("ip", "netns", "del", name, check=False)


@contextmanager
def namespaces():
    """Two namespaces with addresses; yields (storage, compute, storage's address, interface)."""
    sweep()
    pid = os.getpid()
    storage, compute = f"{PREFIX}-{pid}-s", f"{PREFIX}-{pid}-c"
    # Addresses of this pair of namespaces alone; nobody else can reach them.
    subnet = f"10.{200 + pid % 50}.{pid // 50 % 256}"
    with ExitStack() as stack:
        for name in (storage, compute):
            _run("ip", "netns", "add", name)
            stack.callback(_run, "ip", "netns", "del", name, check=False)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        _run(
            "ip", "link", "add", "hapi0", "netns", storage,
            "type", "veth", "peer", "name", "hapi1", "netns", compute,
        )  # fmt: skip
        for name, interface, last in ((storage, "hapi0", 1), (compute, "hapi1", 2)):
            _run("ip", "-n", name, "addr", "add", f"{subnet}.{last}/24", "dev", interface)
            _run("ip", "-n", name, "link", "set", interface, "up")
        yield storage, compute, f"{subnet}.1", "hapi0"


@contextmanager
def cluster(prefix: Sequence[str], address: str, directory: Path, options: Sequence[str] = ()):
    """A Swift, started by a command that begins with ``prefix``; yields its description."""
    hapi = [sys.executable, "-m", "hapi_compute.cli.main", "cluster"]
    where = ["--dir", str(directory / "cluster")]
    out = directory / "cluster.json"
    try:
        done = subprocess.run(
            [*prefix, *hapi, "up", *where, "--json", str(out), "--proxy-host", address,
             "--engine-threads", "1", "--engine-conf", "decode_threads=1",
             "--engine-conf", "measure_memory=false", *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"the cluster does not start: {done.stderr.strip()}")
        yield json.loads(out.read_text())
    finally:
        subprocess.run(
            [*prefix, *hapi, "down", *where], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


def in_storage_tier(hosts: Hosts) -> list[str]:
    """What a command must begin with, to run beside the store."""
    if not hosts.limited:
        return []
    core = str(tier_cores()[0])
    return ["ip", "netns", "exec", hosts.namespace, "taskset", "-c", core]


def run_in_two_hosts(
    module: str, argv: list[str], inside: Callable[[Hosts, list[str]], int]
) -> int:
    """Make the hosts and run this program again on the compute tier, or run there already."""
    described = os.environ.get(ENVIRONMENT)
    if described is not None:
        return inside(Hosts(**json.loads(described)), argv)
    if {"-h", "--help"} & set(argv):
        return inside(Hosts("", "", "", "", "", False), argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    reason = why_not()
    first, second = tier_cores()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hapi-hosts-")))
        storage_prefix, compute_prefix = ["taskset", "-c", str(first)], []
        namespace = interface = ""
        address = "127.0.0.1"
        if reason is None:
            storage, compute, address, interface = stack.enter_context(namespaces())
            namespace = storage
            storage_prefix = ["ip", "netns", "exec", storage, *storage_prefix]
            compute_prefix = ["ip", "netns", "exec", compute, "taskset", "-c", str(second)]
        else:
            print(
                f"NOTE: one host only ({reason}): no rate is in force, and both tiers share the "
                "CPUs; these figures are no emulation of a network",
                file=sys.stderr,
            )
            storage_prefix = []
        info = stack.enter_context(cluster(storage_prefix, address, directory))
        hosts = Hosts(
            info["auth_url"], info["user"], info["key"], namespace, interface, reason is None
        )
        environment = {
            **os.environ,
            ENVIRONMENT: json.dumps(asdict(hosts)),
            CORES: f"{first},{second}",
            "OMP_NUM_THREADS": "1",
            "no_proxy": "*",
        }
        child = subprocess.Popen(
            [*compute_prefix, sys.executable, "-m", module, *argv], env=environment
        )
        try:
            return child.wait()
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait(20)
