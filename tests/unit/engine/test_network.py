"""The thread that runs networks: long runs make way, and nobody is charged for others."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from swift_hapi.engine.network import Network, Stint


class Later:
    """A thread that does nothing by itself."""

    def __init__(self):
        self.given = []

    def submit(self, function):
        self.given.append(function)

    def shutdown(self, wait, cancel_futures):
        self.given.clear()


@pytest.fixture
def network():
    return Network(Later())


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


def test_what_is_submitted_is_done_in_order(network):
    done = []
    futures = [network.submit(done.append, number) for number in range(3)]
    for do in network._thread.given:
        do()
    assert done == [0, 1, 2]
    assert all(future.done() for future in futures)
    assert not network.do_next()


def test_errors_go_to_who_waits(network):
    future = network.submit(int, "x")
    assert network.do_next()
    with pytest.raises(ValueError):
        future.result(0)


def test_what_was_cancelled_is_not_done(network):
    done = []
    network.submit(done.append, 1).cancel()
    network.submit(done.append, 2)
    while network.do_next():
        pass
    assert done == [2]


def test_who_waits_at_the_end_is_told(network):
    future: Future = network.submit(int)
    network.shutdown(cancel_futures=True)
    assert future.cancelled()
    assert not network.do_next()


def test_a_long_run_makes_way_and_takes_turns(network):
    clock, cpu, told = Clock(), Clock(), []
    stint = Stint(network, 2.0, lambda: told.append(clock.now), clock, cpu)

    def other():
        clock.work(3.0)
        cpu.work(1.0)

    first, second = network.submit(other), network.submit(other)
    clock.work(1.0)
    stint.make_way()
    assert not told and not first.done()  # it has not had its time
    clock.work(1.0)
    cpu.work(0.5)
    stint.make_way()
    assert told == [2.0] and first.done() and not second.done()
    clock.work(2.9)
    stint.make_way()
    assert not second.done()  # what it gave, it is given
    clock.work(0.1)
    stint.make_way()
    assert second.done() and told == [2.0]
    assert stint.spent() == (pytest.approx(5.0), pytest.approx(0.5))


def test_a_long_run_goes_on_when_nobody_waits(network):
    clock, told = Clock(), []
    stint = Stint(network, 2.0, lambda: told.append(1), clock, Clock())
    for _ in range(5):
        clock.work(1.0)
        stint.make_way()
    assert told == [1]
    assert stint.spent()[0] == 5.0
