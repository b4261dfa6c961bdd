from __future__ import annotations

from dataclasses import replace

import pytest

from hapi_compute.plan.costs import (
    Correction,
    Demand,
    Setting,
    fill,
    no_overlap,
    run_time,
    stages,
)

SETTING = Setting(
    batch=10, shard=5, in_flight=4, window=4, iterations=100, epochs=3, cpus=1, decoders=1
)
DEMAND = Demand(
    storage=0.004, latency=0.01, bytes=10_000, receive=0.0005, decode=0.0, compute=0.002
)


def test_each_stage_by_hand():
    found = stages(DEMAND, SETTING, bandwidth=5e6)
    assert found.storage == pytest.approx(0.04)
    assert found.network == pytest.approx(0.02)
    assert found.receive == pytest.approx(0.005)
    assert found.compute == pytest.approx(0.02)
    assert found.client == pytest.approx(0.025)  # One CPU does both.
    # Two requests of 10 ms each, then all stages but the training, four at a time.
    assert found.flight == pytest.approx((0.02 + 0.04 + 0.02 + 0.005) / 4)
    assert (found.time, found.bottleneck) == (pytest.approx(0.04), "storage")
    assert no_overlap(found) == pytest.approx(0.085)


def test_the_slowest_stage_decides():
    assert stages(DEMAND, SETTING, 1e6).bottleneck == "network"
    assert stages(replace(DEMAND, compute=0.01), SETTING, 5e6).bottleneck == "client"
    slow = replace(DEMAND, latency=0.5)
    assert stages(slow, replace(SETTING, in_flight=1), 5e6).bottleneck == "flight"


def test_more_cpus_overlap_decoding_and_training():
    raw = Demand(0.0, 0.01, 10_000, 0.0, decode=0.004, compute=0.003)
    one = stages(raw, SETTING, 1e9).client
    two = stages(raw, replace(SETTING, cpus=2), 1e9).client
    assert (one, two) == (pytest.approx(0.07), pytest.approx(0.04))
    four = stages(raw, replace(SETTING, cpus=4, decoders=2), 1e9).client
    assert four == pytest.approx(0.03)
    # Torch on both CPUs leaves none for decoding.
    both = stages(replace(raw, threads=2), replace(SETTING, cpus=2), 1e9).client
    assert both == pytest.approx(0.05)


def test_one_machine_does_the_work_of_both_tiers():
    one = stages(DEMAND, replace(SETTING, shared=True), 5e6)
    assert one.client == pytest.approx(0.025 + 0.04) and one.bottleneck == "client"
    two = stages(DEMAND, replace(SETTING, shared=True, cpus=2), 5e6)
    assert two.client == pytest.approx((0.025 + 0.04) / 2)


def test_a_run_is_filled_once():
    found = stages(DEMAND, SETTING, 5e6)
    whole = run_time(DEMAND, SETTING, 5e6)
    assert whole == pytest.approx(fill(DEMAND, SETTING, 5e6) + 299 * found.time + found.compute)
    assert fill(DEMAND, SETTING, 5e6) > 0.01 + 4 * 0.02 - 1e-9


def test_corrections():
    demand = Correction(storage=2, compute=3, receive=4, decode=5, client=1.5).apply(DEMAND)
    assert (demand.storage, demand.compute, demand.receive) == (0.008, 0.006, 0.002)
    assert stages(demand, SETTING, 5e6).client == pytest.approx(1.5 * (0.06 + 0.02))
