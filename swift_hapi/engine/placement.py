"""Where a process runs: CPUs and niceness, set before any of its threads exist."""

from __future__ import annotations

import os
from dataclasses import replace

from swift_hapi.engine.config import EngineConfig


def own_cpus(ids: tuple[int, ...], worker: int, workers: int) -> set[int]:
    """The CPUs of ``ids`` that one of several workers gets: equal parts in order, or one each,
    counted round, where there are fewer CPUs than workers."""
    if len(ids) < workers:
        return {ids[worker % len(ids)]}
    first = worker * len(ids) // workers
    last = (worker + 1) * len(ids) // workers
    return set(ids[first:last])


def settle(config: EngineConfig, worker: int) -> EngineConfig:
    """Take the place that the configuration gives this process.

    :returns: the configuration with ``engine_cpus`` narrowed to this worker's part
    :raises OSError: there are no such CPUs
    """
    if config.nice:
        os.nice(config.nice)
    ids = config.engine_cpus.ids
    if not ids:
        return config
    own = own_cpus(ids, worker, config.workers)
    os.sched_setaffinity(0, own)
    return replace(config, engine_cpus=replace(config.engine_cpus, ids=tuple(sorted(own))))
