"""Many requests for several networks at once, in memory that holds barely two of them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np

from benchmarks.load.client import Target, together
from benchmarks.load.setting import Setting, memory
from swift_hapi.protocol import payload

CLIENTS = 64
RTOL = 1e-5
FULL = 32
#: What the manual says the process takes besides its budget: interpreter, PyTorch and its
#: libraries, thread stacks, images being decoded, the allocator's and oneDNN's own.
OVERHEAD = 768 << 20
_SHARDS = 4
_JOB_STREAMS = 4  #: requests that one training job has under way


@dataclass(frozen=True)
class Size:
    images: int
    rounds: int
    requests: int = CLIENTS


def mixed(setting: Setting, size: Size) -> tuple[list[dict], dict]:
    """Cases of every round, and the summary of points 1 and 2."""
    needs = sorted(n.need(FULL) for n in setting.networks.values())
    budget = needs[-1] + needs[-2]
    setting.configure(memory_budget=budget)
    names = [setting.shard(size.images, number) for number in range(_SHARDS)]
    pairs = [(network, name) for name in names for network in setting.networks]
    targets = {pair: setting.target(*pair) for pair in pairs}
    alone = {pair: _features(together([targets[pair]], 1)[0][0]) for pair in pairs}
    setting.wait_measured()
    # The peak is to be that of the load, not of the start and what came before.
    setting.configure(memory_budget=budget)
    started = memory(setting.engine_pid)

    load = [pairs[i % len(pairs)] for i in range(size.requests)]
    cases, failed, refusals, differ = [], 0, 0, 0
    for turn in range(size.rounds):
        single = _single_jobs(setting, load, targets, size.images)
        results, seconds = together([targets[pair] for pair in load], CLIENTS)
        for pair, result in zip(load, results, strict=True):
            failed += result.status != 200
            refusals += len(result.refusals)
            if result.status == 200:
                differ += not _equal(_features(result), alone[pair])
        rate = size.requests * size.images / seconds
        cases.append(
            {
                "case": "mixed",
                "turn": turn,
                "single_jobs_per_s": single,
                "loaded_per_s": rate,
                "ratio": rate / single,
            }
        )
    status = setting.engine()
    peak = memory(setting.engine_pid)
    return cases, {
        "requests": size.rounds * size.requests,
        "failed": failed,
        "differ": differ,
        "refusals": refusals,
        "budget_bytes": budget,
        "needs_bytes": needs,
        "peak_bytes": peak,
        "started_bytes": started,
        "overhead_bytes": OVERHEAD,
        "within_budget": peak <= budget + OVERHEAD,
        "evictions": status["models"]["evictions"],
        "allocation_failures": status["allocation_failures"],
        "heap_trims": status["heap_trims"],
        "throughput_ratio": statistics.median(case["ratio"] for case in cases),
    }


def _single_jobs(
    setting: Setting, load: list[tuple[str, str]], targets: dict, images: int
) -> float:
    """Samples per second of the same mix, one network after the other, each as one job would."""
    seconds = 0.0
    for network in setting.networks:
        own: list[Target] = [targets[pair] for pair in load if pair[0] == network]
        results, took = together(own, _JOB_STREAMS)
        if any(result.status != 200 for result in results):
            raise RuntimeError("a single job fails")
        seconds += took
    return len(load) * images / seconds


def _features(result) -> np.ndarray:
    if result.status != 200:
        raise RuntimeError(f"{result.status} {result.problem}")
    return payload.decode(result.body).features


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and bool(
        np.abs(one - other).max() <= RTOL * np.abs(other).max()
    )
