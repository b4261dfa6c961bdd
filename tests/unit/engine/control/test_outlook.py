from __future__ import annotations

import itertools

import pytest

from swift_hapi.engine.control import ControlConfig, DeviceSpec, Ticket
from swift_hapi.engine.control.device import Device
from swift_hapi.engine.control.fairness import AccountClock
from swift_hapi.engine.control.outlook import Outlook
from swift_hapi.engine.control.queueing import Job
from tests.unit.engine.control.support import spec


@pytest.fixture
def device() -> Device:
    """Of 1000 bytes, a quarter of them for objects of at most two requests."""
    config = ControlConfig(places=2, load_rate=50.0, max_retry_after=30.0)
    return Device(
        0, DeviceSpec("d", 1000), config, AccountClock(), itertools.count(1), lambda event: None
    )


@pytest.fixture
def outlook(device) -> Outlook:
    return device.outlook


def job(name="r", nbytes=0, **values) -> Job:
    return Job(Ticket(name, name, nbytes, **values))


def test_what_no_lane_counts_is_expected_until_one_does(device, outlook):
    one, two = job("one"), job("two")
    outlook.expect(one, 3.0)
    outlook.expect(two, 4.0)
    assert outlook.expected_seconds() == 7
    outlook.expect(one, 5.0)
    assert outlook.expected_seconds() == 9
    two.spec, two.samples = spec(sample_seconds=2.0), 3
    outlook.expect(two, 0.0)
    device.lanes.add(two, 0.0)
    assert outlook.expected_seconds() == 5 + 3 * 2
    outlook.expect(one, 0.0)
    assert outlook.expected_seconds() == 6


def test_the_pace_is_that_of_late(outlook):
    outlook.expect(job(), 10.0)
    outlook.resume(100.0)
    # Micro-batches overlapped: two seconds of work in one.
    outlook.measured(2.0, 101.0)
    assert outlook.expected_seconds() == 5
    outlook.resume(101.0)
    for end in range(101, 201):
        outlook.measured(1.0, end + 1.0)
        outlook.resume(end + 1.0)
    assert outlook.expected_seconds() == pytest.approx(10, rel=1e-3)


def test_time_without_work_does_not_count(outlook):
    outlook.expect(job(), 10.0)
    outlook.resume(0.0)
    outlook.measured(1.0, 1.0)
    outlook.resume(1000.0)
    outlook.measured(1.0, 1001.0)
    assert outlook.expected_seconds() == 10


def test_requests_on_their_way_are_counted_by_digest(outlook):
    jobs = [job("a", digest="m"), job("b", digest="m"), job("c")]
    for each in jobs:
        outlook.announce(each)
    assert outlook.coming == {"m": 2}
    outlook.arrived(jobs[0])
    outlook.arrived(jobs[2])
    assert outlook.coming == {"m": 1}
    outlook.arrived(jobs[1])
    assert not outlook.coming


def test_weights_that_are_there_or_on_their_way_need_no_loading(device, outlook):
    def load_seconds(digest):
        return outlook.bid(0, Ticket("x", "x", 0, digest=digest), 100).load_seconds

    assert load_seconds("m") == 2 and load_seconds(None) == 0
    coming = job("r", digest="m")
    outlook.announce(coming)
    assert load_seconds("m") == 0
    outlook.arrived(coming)
    assert load_seconds("m") == 2
    device.ledger.weights.add("m", 100)
    assert load_seconds("m") == 0


def test_who_is_told_to_come_back_waits_for_its_part_of_the_work(device, outlook):
    assert outlook.retry_after(100) == pytest.approx(0.1)
    for name in "ab":
        device.offer(job(name, 100, seconds=8.0))
    # Half of the places are free when half of the work is done; all of the bytes later.
    assert outlook.retry_after(0) == 8
    assert outlook.retry_after(250) == 16
    outlook.expect(job("c"), 1000.0)
    assert outlook.retry_after(250) == 30
