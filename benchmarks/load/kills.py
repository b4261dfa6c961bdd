"""The engine is killed again and again while clients ask for features and for plain objects."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter

from benchmarks.load.client import Client, Target, together
from benchmarks.load.setting import Setting, memory

_STREAMS = 8
_PLAIN_PAUSE = 0.02


def kills(setting: Setting, network: str, count: int) -> tuple[list[dict], dict]:
    """What clients saw, and memory before and after."""
    setting.configure()
    account = setting.accounts[0]
    account.put("plain")
    account.put("plain", "small", body=os.urandom(1024))
    target = setting.target(network, setting.shard(8))
    small = Target(account, ("plain", "small"), {})
    proxy = setting.cluster.pids["proxy"]
    baseline = _memory_after_load(setting, target)
    proxy_before = memory(proxy, "VmRSS")

    stop, seen, plain = threading.Event(), Counter(), Counter()
    threads = [threading.Thread(target=_stream, args=(target, stop, seen, 0))
               for _ in range(_STREAMS)]  # fmt: skip
    threads.append(threading.Thread(target=_stream, args=(small, stop, plain, _PLAIN_PAUSE)))
    for thread in threads:
        thread.start()
    rng = random.Random(count)
    began = time.monotonic()
    for _ in range(count):
        setting.wait_ready()
        # Anywhere between the first answers and the middle of the load.
        time.sleep(rng.uniform(0.3, 2.0))
        pid = setting.engine_pid
        os.kill(pid, signal.SIGKILL)
        setting.wait_ready(pid)
    took = time.monotonic() - began
    stop.set()
    for thread in threads:
        thread.join()
    after = _memory_after_load(setting, target)
    typed = {"200", "503 engine-unavailable", "503 engine-busy"}
    odd = {what: number for what, number in seen.items() if what not in typed}
    case = {"case": "kills", "answers": dict(seen), "plain": dict(plain), "seconds": took}
    return [case], {
        "kills": count,
        "kills_odd_answers": odd,
        "kills_plain_failed": sum(n for what, n in plain.items() if what != "200"),
        "kills_plain_gets": sum(plain.values()),
        "kills_success": seen["200"],
        "kills_memory": {"engine": [baseline, after],
                         "proxy": [proxy_before, memory(proxy, "VmRSS")]},
    }  # fmt: skip


def _stream(target: Target, stop: threading.Event, seen: Counter, pause: float) -> None:
    """One attempt after the other, each counted; a short wait after a refusal."""
    client = Client(attempts=1)
    while not stop.is_set():
        result = client.ask(target)
        what = f"{result.status} {result.problem}".strip() if result.status else "broken"
        seen[what] += 1
        time.sleep(pause if result.status == 200 else max(pause, 0.1))
    client.close()


def _memory_after_load(setting: Setting, target: Target) -> int:
    """Of a young engine, after the same small load each time."""
    setting.configure()
    together([target] * 24, _STREAMS)
    setting.wait_idle()
    return memory(setting.engine_pid, "VmRSS")
