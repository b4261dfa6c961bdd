"""The simulator and its rivals, on traces small enough to know the outcome."""

import pytest

from benchmarks.controller_sim import jain, papers_example, simulate
from benchmarks.policies.base import Run, SharedDevice
from benchmarks.policies.ours import Ours
from benchmarks.policies.rivals import LinearProgram, Unadapted
from benchmarks.policies.trace import GB, MODELS, OVERHEAD, equal, tenants


def test_jain():
    assert jain([3.0, 3.0]) == pytest.approx(1)
    assert jain([1.0, 0, 0, 0]) == pytest.approx(0.25)
    assert jain([0.0]) == 0


def test_a_device_shares_its_time():
    device = SharedDevice()
    long, short = Run(0, 4.0, 0, {}), Run(0, 1.0, 0, {})
    device.add(long, 0.0)
    device.add(short, 1.0)
    assert device.next_end() == pytest.approx(3.0)
    assert device.pop(3.0) is short
    assert device.next_end() == pytest.approx(5.0)
    assert device.pop(5.0) is long and device.next_end() is None
    assert device.busy == pytest.approx(5.0)


def test_four_equal_requests():
    pytest.importorskip("scipy")
    example = papers_example()
    assert sum(example["ours"]) == 3057 and max(example["ours"]) - min(example["ours"]) <= 1
    assert example["lp"] == [1000, 1000, 1000, 57]


def test_alone_all_policies_take_the_same_time():
    pytest.importorskip("scipy")
    requests = equal(1, 256, MODELS[1])
    expected = requests[0].model.weights / 10e9 + OVERHEAD + requests[0].seconds
    for kind in (Ours, Unadapted, LinearProgram):
        row = simulate(kind(1, 80 * GB), requests, 1, 80 * GB)
        assert row["makespan_s"] == pytest.approx(expected)
        assert row["failed"] == 0 and row["batches"] == 1


def test_everything_finishes_within_the_budget_where_the_unadapted_fails():
    requests = tenants(12, 2, seed=7)
    ours = simulate(Ours(2, 12 * GB), requests, 2, 12 * GB)
    assert ours["failed"] == 0 and ours["peak"] <= 1
    assert simulate(Unadapted(2, 12 * GB), requests, 2, 12 * GB)["failed"] > 0
