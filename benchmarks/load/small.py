"""Single JPEGs from many clients, with and without common micro-batches."""

from __future__ import annotations

import statistics

from benchmarks.load.client import together
from benchmarks.load.setting import Setting
from benchmarks.photos import photo

CLIENTS = 32
_OBJECTS = 32
_SETTINGS = {"shared": {}, "single": {"batch_max": 1, "batch_wait": 0}}


def small(
    setting: Setting, networks: tuple[str, ...], requests: int, turns: int
) -> tuple[list[dict], dict]:
    """Images per second through Swift, by network and way of batching."""
    for i in range(_OBJECTS):
        setting.accounts[0].put("shards", f"{i}.jpg", body=photo(i))
    cases = []
    for turn in range(turns):
        for way, options in _SETTINGS.items():
            setting.configure(**options)
            for network in networks:
                targets = [
                    setting.target(network, f"{i % _OBJECTS}.jpg") for i in range(requests)
                ]
                together(targets[:CLIENTS], CLIENTS)  # warm up
                results, seconds = together(targets, CLIENTS)
                if any(result.status != 200 for result in results):
                    raise RuntimeError("a single image fails")
                sizes = [int(result.headers["x-hapi-batch-size"]) for result in results]
                cases.append(
                    {
                        "case": f"small {network}",
                        "turn": turn,
                        "batches": way,
                        "images_per_s": requests / seconds,
                        "p50_ms": statistics.median(r.seconds for r in results) * 1e3,
                        "mean_batch": statistics.fmean(sizes),
                    }
                )
    return cases, {"small_ratio": {network: _ratio(cases, network) for network in networks}}


def _ratio(cases: list[dict], network: str) -> float:
    rates = {
        way: statistics.median(
            case["images_per_s"]
            for case in cases
            if case["case"] == f"small {network}" and case["batches"] == way
        )
        for way in _SETTINGS
    }
    return rates["shared"] / rates["single"]
