"""One account with a hundred requests queued, and another that comes with one."""

from __future__ import annotations

import statistics
import threading
import time

from benchmarks.load.client import Client, Target
from benchmarks.load.setting import Setting

FLOOD = 100


def fairness(
    setting: Setting, network: str, images: int, arrivals: int, flood: int = FLOOD
) -> tuple[list[dict], dict]:
    """Latency of the one, without and with the hundred."""
    # An account may have no more objects inside than it leaves room for: a hundred take a lot.
    setting.configure(memory_budget="8 GiB")
    name = setting.shard(images, 0, account=0)
    setting.shard(images, 0, account=1)
    one = setting.target(network, name, account=1)
    many = setting.target(network, name, account=0)
    client = Client()
    client.ask(one)  # warm up
    unloaded = [_latency(client, one) for _ in range(arrivals)]
    stop = threading.Event()
    threads = [threading.Thread(target=_keep_asking, args=(many, stop)) for _ in range(flood)]
    for thread in threads:
        thread.start()
    try:
        _wait_for_queue(setting, flood * images)
        loaded = [_latency(client, one) for _ in range(arrivals)]
        status = setting.engine()
    finally:
        stop.set()
        setting.configure()  # what is queued is of no use any more
        for thread in threads:
            thread.join()
    cases = [
        {"case": "fairness", "turn": turn, "unloaded_s": alone, "loaded_s": among}
        for turn, (alone, among) in enumerate(zip(unloaded, loaded, strict=True))
    ]
    return cases, {
        "fairness_ratio": statistics.median(loaded) / statistics.median(unloaded),
        "fairness_queued_requests": status["queue"]["in_flight"] + status["queue"]["waiting"],
        "fairness_queued_samples": _queued(status),
    }


def _latency(client: Client, target: Target) -> float:
    result = client.ask(target)
    if result.status != 200:
        raise RuntimeError(f"{result.status} {result.problem}")
    return result.seconds


def _keep_asking(target: Target, stop: threading.Event) -> None:
    client = Client(stop=stop)
    while not stop.is_set():
        client.ask(target)
    client.close()


def _queued(status: dict) -> int:
    return sum(lane["waiting"] for lane in status["lanes"])


def _wait_for_queue(setting: Setting, samples: int) -> None:
    """Nearly all of the flood has to be in the engine's queue, not on its way there."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        status = setting.engine()
        if _queued(status) >= 0.75 * samples:
            return
        time.sleep(0.1)
    raise RuntimeError(f"the flood does not arrive: {status['queue']}")
