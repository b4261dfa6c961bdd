"""Memory: of the machine, of its cgroups, and a share of it."""

from __future__ import annotations

import os

import numpy as np
import pytest

from swift_hapi.engine.budget import MemoryBudget, host_memory
from swift_hapi.engine.buffers import array
from swift_hapi.graph.residence import resident

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_bytes_and_shares():
    assert MemoryBudget(nbytes=5).resolve(100) == 5
    assert MemoryBudget(share=0.25).resolve(100) == 25
    assert MemoryBudget(nbytes=5).divided(4).resolve(100) == 5
    assert MemoryBudget(share=0.5).divided(2).resolve(100) == 25


@pytest.mark.parametrize(
    "own, files, expected",
    [
        ("0::/\n", {}, PHYSICAL),
        ("0::/a/b\n", {"a/memory.max": "max\n", "a/b/memory.max": "5000\n"}, 5000),
        ("0::/a/b\n", {"a/memory.max": "4000\n", "a/b/memory.max": "5000\n"}, 4000),
        ("0::/on/the/host\n", {"memory.max": "6000\n"}, 6000),
        ("0::/../escape\n", {"escape/memory.max": "7000\n"}, 7000),
        ("3:cpu,memory:/x\n2:net:/y\n", {"memory/x/memory.limit_in_bytes": "3000\n"}, 3000),
        ("0::/\n", {"memory.max": f"{PHYSICAL * 2}\n"}, PHYSICAL),
    ],
)
def test_the_host_is_what_the_cgroup_allows(tmp_path, own, files, expected):
    root = tmp_path / "cgroup"
    root.mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (tmp_path / "self").write_text(own)
    assert host_memory(root, tmp_path / "self") == expected


def test_no_cgroups_at_all(tmp_path):
    assert host_memory(tmp_path, tmp_path / "missing") == PHYSICAL


def test_arrays_outside_of_the_heap_go_back_to_the_system():
    before = resident()
    large = array((64, 1 << 20), np.uint8)
    large += 1
    assert resident() - before > 60 << 20
    rows = large[3:5]
    del large
    assert rows.sum() == 2 << 20
    del rows
    assert resident() - before < 32 << 20
