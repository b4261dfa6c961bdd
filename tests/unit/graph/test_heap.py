"""The process is kept within its memory, measured in processes whose heaps are known."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from swift_hapi.graph.extractor import save_extractor
from swift_hapi.graph.heap import Heap
from swift_hapi.graph.liveness import live_profile
from swift_hapi.graph.memory import HeadMemory, calibrate, measure_command

MEMORY = HeadMemory(once=1 << 20, per_sample=1 << 20, steps=(1 << 20, 0))


def test_nobody_looks_where_there_is_room():
    heap = Heap(budget=1 << 40)
    assert heap.watch(MEMORY, 4) is None  # not settled yet
    heap.settle()
    assert heap.watch(MEMORY, 4) is None
    assert heap.trims == 0


def test_memory_is_returned_only_before_a_node_that_does_not_fit():
    heap = Heap(budget=64 << 20)
    heap.settle()
    before = heap.watch(HeadMemory(0, 32 << 20, (1 << 20, 1 << 40)), 1)
    before(0)
    assert heap.trims == 0
    before(1)
    assert heap.trims == 1


def test_returning_is_not_repeated_where_it_is_of_no_use():
    heap = Heap(budget=0)
    heap.settle()
    before = heap.watch(MEMORY, 4)
    for _ in range(50):
        before(0)
    assert heap.trims == 1


@pytest.fixture(scope="module")
def densenet(tmp_path_factory):
    """Its heap grows to a multiple of what is alive."""
    import torch

    from hapi_compute.models import load_model
    from swift_hapi.graph.split import make_extractor

    torch.set_num_threads(1)
    loaded = load_model("densenet121", "random:0")
    extractor = make_extractor(loaded.module, "features.denseblock2", (3, 224, 224))
    path = tmp_path_factory.mktemp("heap") / "densenet.safetensors"
    save_extractor(extractor, path)
    return path, extractor


def test_a_run_keeps_within_what_is_predicted(densenet):
    path, extractor = densenet
    model = calibrate(path, extractor, batches=(2, 4))
    command = measure_command(path, (6,), 1)
    within = subprocess.run(
        [*command, "--within", f"{model.once},{model.times}"], capture_output=True, check=True
    )
    free = subprocess.run([*command, "--free"], capture_output=True, check=True)
    peak = json.loads(within.stdout)["6"]["peak"]
    memory = model.of(live_profile(extractor, extractor.cuts[-1]))
    assert peak <= memory.needs(6)
    # It would have taken more if it could.
    assert json.loads(free.stdout)["6"]["peak"] > peak


def test_measuring_a_missing_file_fails(tmp_path):
    command = measure_command(tmp_path / "none.safetensors", (1,), 1)
    assert subprocess.run(command, capture_output=True).returncode != 0
    assert command[0] == sys.executable
