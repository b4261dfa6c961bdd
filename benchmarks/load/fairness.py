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
    setting.configure()
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
        _wait_for_queue(setting, flood)
        loaded = [_latency(client, one) for _ in range(arrivals)]
        queue = setting.engine()["queue"]
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
        "fairness_queue": queue["in_flight"] + queue["waiting"],
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


def _wait_for_queue(setting: Setting, flood: int) -> None:
    """Most of them have to be inside: an account may hold half of all places."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        queue = setting.engine()["queue"]
        if queue["in_flight"] + queue["waiting"] >= 0.9 * flood:
            return
        time.sleep(0.1)
    raise RuntimeError(f"the flood does not arrive: {queue}")
