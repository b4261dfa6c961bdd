from __future__ import annotations

import pytest

from hapi_compute.store.occupancy import COMPUTE, FETCH, IDLE, NETWORK, STORAGE, Occupancy


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_overlapping_activities_count_once(clock):
    seen = Occupancy(clock)
    start = seen.now()
    with seen.busy(STORAGE):
        clock.now += 1
        with seen.busy(STORAGE):
            clock.now += 2
        clock.now += 1
    clock.now += 3
    took = seen.now().since(start)
    assert took.at == 7 and took.busy[STORAGE] == 4
    assert took.split[STORAGE] == 4 and took.split[IDLE] == 3


def test_every_second_belongs_to_one_kind(clock):
    seen = Occupancy(clock)
    start = seen.now()
    with seen.busy(FETCH), seen.busy(STORAGE):
        clock.now += 1
        with seen.busy(NETWORK):
            clock.now += 1
            with seen.busy(COMPUTE):
                clock.now += 1
    took = seen.now().since(start)
    assert took.split == {COMPUTE: 1, "receive": 0, NETWORK: 1, STORAGE: 1, IDLE: 0}
    assert took.busy[STORAGE] == 3 and took.busy[NETWORK] == 2 and took.busy[FETCH] == 3


def test_an_activity_under_way_counts_up_to_now(clock):
    seen = Occupancy(clock)
    with seen.busy(NETWORK):
        clock.now += 5
        assert seen.now().busy[NETWORK] == 5


def test_failures_end_activities(clock):
    seen = Occupancy(clock)
    with pytest.raises(KeyError), seen.busy(NETWORK):
        raise KeyError
    clock.now += 5
    assert seen.now().busy[NETWORK] == 0
