"""How the CPUs are shared between torch and decoding.

Torch's threads spin while they wait for each other: with more threads than CPUs, each wait lasts
until the scheduler comes round again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hapi_compute.train.config import TrainConfig


def cpus() -> int:
    """CPUs for this process: those it may use, divided by the ranks on this machine."""
    if hasattr(os, "sched_getaffinity"):
        usable = len(os.sched_getaffinity(0))
    else:
        usable = os.cpu_count() or 1
    return max(1, usable // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def beside_a_store() -> int:
    """Torch's threads where the store, with its engine, runs on the same CPUs."""
    return max(1, cpus() // 2)


def decode_threads(config: TrainConfig) -> int:
    return config.decode_threads or max(1, cpus() // 2)


def torch_threads(config: TrainConfig, raw: bool) -> int:
    """Without a push-down decoding goes on beside the training; with one it does not."""
    if config.threads is not None:
        return config.threads
    return max(1, cpus() - decode_threads(config)) if raw else cpus()


@contextmanager
def shared_cpus(config: TrainConfig, raw: bool) -> Iterator[None]:
    """Set torch's threads for one run, and put back what was before."""
    before = torch.get_num_threads()
    torch.set_num_threads(torch_threads(config, raw))
    try:
        yield
    finally:
        torch.set_num_threads(before)
