"""Plain GETs beside feature requests, and what is left of requests that were given up."""

from __future__ import annotations

import argparse
import os
import random
import socket
import time
from urllib.parse import urlsplit

from benchmarks import plain_get
from benchmarks.load.client import Client
from benchmarks.load.setting import Setting, descriptors, memory
from benchmarks.photos import photo, tar

_SETTLE = 30.0


def plain(
    setting: Setting, network: str, turns: int, seconds: float, rate: float = 25.0
) -> tuple[list[dict], dict]:
    """Latencies of an open loop of plain GETs, with and without feature requests, by turns."""
    setting.configure()
    account = setting.accounts[0]
    account.put("plain")
    account.put("plain", "small", body=os.urandom(1024))
    account.put("plain", "shard.tar", body=tar({f"{i}.jpg": photo(i) for i in range(32)}))
    headers = setting.target(network, "any").headers
    place = plain_get.Place(account.storage_url, account.token)
    args = argparse.Namespace(streams=4, rate=rate, seconds=seconds, settle=2.0, turns=turns)
    cases = plain_get.alternate(place, headers, args)
    summary = plain_get.summarise(cases)
    busy = [case for case in cases if case["hapi"]]
    return [{"case": "plain", **case} for case in cases], {
        "plain_p99_ratio": summary["plain_p99_ratio"],
        "plain_p50_ratio": summary["plain_p50_ratio"],
        "plain_p99_ms": [summary["p99_ms_without"], summary["p99_ms_with"]],
        "plain_gets_per_s": rate,
        "hapi_answers_per_s": sum(case["hapi_answers"] for case in busy)
        / (len(busy) * (seconds + args.settle)),
        "hapi_feature_MB_per_s": sum(case["hapi_MB_per_s"] for case in busy) / len(busy),
        "hapi_object_MB_per_s": sum(case["hapi_answers"] for case in busy)
        * sum(len(photo(i)) for i in range(32))
        / (len(busy) * (seconds + args.settle))
        / 1e6,
    }


def aborted(setting: Setting, network: str, count: int) -> tuple[list[dict], dict]:
    """Descriptors of proxy and engine before and after requests whose clients left early."""
    setting.configure()
    name = setting.shard(8)
    target = setting.target(network, name)
    Client().ask(target)
    pids = {who: setting.cluster.pids[who] for who in ("proxy", "engine")}
    _abort(target, 20)  # what is opened once and kept
    before = _settled(setting, pids)
    held = {who: memory(pid, "VmRSS") for who, pid in pids.items()}
    _abort(target, count)
    after = _settled(setting, pids)
    if Client().ask(target).status != 200:
        raise RuntimeError("after the aborted requests none succeeds")
    case = {
        "case": "aborted",
        "requests": count,
        **{f"{who}_fds": [before[who], after[who]] for who in pids},
        **{f"{who}_grown": memory(pid, "VmRSS") - held[who] for who, pid in pids.items()},
    }
    return [case], {
        "aborted": count,
        "fds_before": before,
        "fds_after": after,
        "fds_flat": all(after[who] <= before[who] + 2 for who in pids),
    }


def _abort(target, count: int) -> None:
    """Leave at any moment: before the engine knows, while it reads, computes or answers."""
    rng = random.Random(count)
    parts = urlsplit(target.account.storage_url)
    lines = [f"GET {target.account.path(*target.names)} HTTP/1.1", f"Host: {parts.netloc}"]
    lines += [f"{name}: {value}" for name, value in target.headers.items()]
    lines += [f"X-Auth-Token: {target.account.token}", "", ""]
    request = "\r\n".join(lines).encode()
    for _ in range(count):
        with socket.create_connection((parts.hostname, parts.port), timeout=30) as client:
            client.sendall(request)
            time.sleep(rng.choice((0, 0.005, 0.02, 0.05, 0.1)))


def _settled(setting: Setting, pids: dict[str, int]) -> dict[str, int]:
    """Descriptors once nothing is under way and their number no longer falls."""
    setting.wait_idle()
    least = {who: descriptors(pid) for who, pid in pids.items()}
    until = time.monotonic() + _SETTLE
    quiet = 0
    while quiet < 10 and time.monotonic() < until:
        time.sleep(0.2)
        now = {who: descriptors(pid) for who, pid in pids.items()}
        quiet = quiet + 1 if all(now[who] >= least[who] for who in pids) else 0
        least = {who: min(least[who], now[who]) for who in pids}
    return now
