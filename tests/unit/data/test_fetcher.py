from __future__ import annotations

import threading

import numpy as np
import pytest

from hapi_compute.data.fetcher import Fetcher
from hapi_compute.data.listing import Shard
from hapi_compute.data.shards import Job, ShardSamples


class Gate:
    """A reader whose reads wait until they are let through; records what is asked for."""

    def __init__(self, open_from_start: bool = True):
        self.asked: list[str] = []
        self.fail: dict[str, BaseException] = {}
        self.gates: dict[str, threading.Event] = {}
        self.open = open_from_start
        self.changed = threading.Condition()
        self.running = self.most = 0

    def expected_bytes(self, job):
        return job.shard.bytes

    def gate(self, name) -> threading.Event:
        with self.changed:
            return self.gates.setdefault(name, threading.Event())

    def wait_for(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, timeout=20)

    def read(self, job, sleep):
        name = job.shard.name
        with self.changed:
            self.asked.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
            self.changed.notify_all()
        try:
            if not self.open:
                assert self.gate(name).wait(20)
            if name in self.fail:
                raise self.fail[name]
            return ShardSamples(None, (name,), np.zeros(1, np.int64), 1)
        finally:
            with self.changed:
                self.running -= 1


def jobs(count, size=1):
    return [Job(Shard(f"s{n}", "e", size), 0, None) for n in range(count)]


def names(fetched) -> list[str]:
    return [each.keys[0] for each in fetched]


def test_order_is_kept():
    with Fetcher(jobs(20), Gate(), concurrency=4, prefetch=8) as fetcher:
        assert names(fetcher) == [f"s{n}" for n in range(20)]


def test_order_is_kept_when_the_first_is_slowest():
    gate = Gate(open_from_start=False)
    with Fetcher(jobs(3), gate, concurrency=3, prefetch=3) as fetcher:
        for name in ("s2", "s1", "s0"):
            gate.gate(name).set()
        assert names(fetcher) == ["s0", "s1", "s2"]


def test_prefetch_in_shards():
    gate = Gate()
    with Fetcher(jobs(9), gate, concurrency=9, prefetch=3) as fetcher:
        gate.wait_for(lambda: len(gate.asked) == 3)
        next(fetcher)
        gate.wait_for(lambda: len(gate.asked) == 4)
    assert len(gate.asked) == 4


def test_prefetch_in_bytes():
    gate = Gate()
    with Fetcher(jobs(9, size=100), gate, prefetch=9, max_bytes=250) as fetcher:
        gate.wait_for(lambda: len(gate.asked) == 2)
        next(fetcher)
        gate.wait_for(lambda: len(gate.asked) == 3)
    assert len(gate.asked) == 3


def test_one_shard_larger_than_all_is_allowed():
    with Fetcher(jobs(3, size=1000), Gate(), prefetch=9, max_bytes=250) as fetcher:
        assert len(names(fetcher)) == 3


def test_concurrency_is_a_bound():
    gate = Gate(open_from_start=False)
    with Fetcher(jobs(6), gate, concurrency=2, prefetch=6) as fetcher:
        gate.wait_for(lambda: gate.running == 2)
        for n in range(6):
            gate.gate(f"s{n}").set()
        names(fetcher)
    assert gate.most == 2


def test_failure_comes_at_its_turn():
    gate = Gate()
    gate.fail["s2"] = KeyError("s2 is broken")
    with Fetcher(jobs(5), gate, concurrency=4, prefetch=5) as fetcher:
        assert names([next(fetcher), next(fetcher)]) == ["s0", "s1"]
        with pytest.raises(KeyError, match="s2 is broken"):
            next(fetcher)


def test_close_ends_the_threads_and_starts_nothing_more():
    before = threading.active_count()
    gate = Gate(open_from_start=False)
    fetcher = Fetcher(jobs(9), gate, concurrency=2, prefetch=9)
    gate.wait_for(lambda: gate.running == 2)
    gate.gate("s0").set()
    gate.gate("s1").set()
    fetcher.close()
    assert threading.active_count() == before
    assert len(gate.asked) <= 4


def test_close_wakes_pauses_between_retries():
    class Patient(Gate):
        def read(self, job, sleep):
            with self.changed:
                self.asked.append(job.shard.name)
                self.changed.notify_all()
            assert sleep(600) is True
            raise KeyError("stopped")

    reader = Patient()
    before = threading.active_count()
    fetcher = Fetcher(jobs(2), reader)
    reader.wait_for(lambda: reader.asked)
    fetcher.close()
    assert threading.active_count() == before


def test_nothing_to_fetch():
    with Fetcher([], Gate()) as fetcher:
        assert names(fetcher) == []


@pytest.mark.parametrize(("kind", "most"), [(KeyboardInterrupt, 0.0), (ValueError, 2.0)])
def test_requests_under_way_are_waited_for_together_and_not_by_an_interrupt(
    kind, most, monkeypatch
):
    reader, waits = Gate(open_from_start=False), []
    join = threading.Thread.join
    monkeypatch.setattr(threading.Thread, "join", lambda self, timeout=None: waits.append(timeout))
    # A clock that stands still while nothing really waits would hide a sum.
    clock = iter(range(100))
    monkeypatch.setattr("hapi_compute.data.fetcher.time.monotonic", lambda: float(next(clock)))
    with pytest.raises(kind), Fetcher(jobs(4), reader, concurrency=4) as fetcher:
        reader.wait_for(lambda: reader.running == 4)
        raise kind
    assert len(waits) == 4 and sum(waits) <= most
    monkeypatch.undo()
    for number in range(4):
        reader.gate(f"s{number}").set()
    for thread in fetcher._threads:
        join(thread, 20)
