from __future__ import annotations

import threading

import numpy as np
import pytest

from hapi_compute.data.listing import Shard
from hapi_compute.data.routing import Router
from hapi_compute.data.shards import Job, ShardSamples
from hapi_compute.store.occupancy import Occupancy


class Way:
    """Reads shards of two samples; waits for :attr:`go` if there is one."""

    def __init__(self, name: str):
        self.name = name
        self.go: threading.Event | None = None
        self.entered = threading.Event()

    def expected_bytes(self, job):
        return len(self.name)

    def read(self, job, sleep):
        self.entered.set()
        if self.go is not None:
            assert self.go.wait(20)
        return ShardSamples(
            None, (self.name, job.shard.name), np.zeros(2, np.int64), 10,
            storage={"infer": 0.5}, times=((0.0, 1.0, 3.0),),
        )  # fmt: skip


@pytest.fixture
def ways():
    return {"a": Way("a"), "bb": Way("bb")}


@pytest.fixture
def router(ways):
    return Router(ways.__getitem__, "a", Occupancy())


def job(name="s", epoch=0) -> Job:
    return Job(Shard(name, "e", 1), epoch, None)


def read(router, name="s") -> str:
    return router.read(job(name), None).keys[0]


def test_the_route_is_decided_when_a_read_begins(router):
    assert read(router) == "a" and router.expected_bytes(None) == 1
    router.switch("bb")
    assert read(router) == "bb" and router.expected_bytes(None) == 2


def test_one_shard_by_another_way(router):
    router.once("bb")
    assert [read(router) for _ in range(3)] == ["bb", "a", "a"]
    ((route, brought),) = router.strays()
    assert (route, brought.samples, brought.waited, brought.sent) == ("bb", 2, 1.0, 2.0)
    assert router.strays() == []


def test_what_was_read_before_is_handed_out_once(router):
    kept = ShardSamples(None, ("kept",), np.zeros(1, np.int64), 1)
    router.keep(job("x", epoch=1), kept)
    assert read(router, "x") == "a"  # Of another epoch.
    assert router.read(job("x", epoch=1), None) is kept
    assert router.read(job("x", epoch=1), None) is not kept


def test_a_stretch_is_of_one_route_alone(router, ways):
    assert router.stretch() is None
    router.restart()
    read(router)
    read(router)
    stretch = router.stretch()
    assert stretch.route == "a" and stretch.took.at > 0
    brought = stretch.brought
    assert (brought.shards, brought.samples, brought.requests, brought.bytes) == (2, 4, 2, 20)
    assert brought.storage == {"infer": 1.0} and brought.waited == 2.0
    # A read of the old route is still under way: the stretch begins after it.
    ways["a"].go = threading.Event()
    ways["a"].entered.clear()
    slow = threading.Thread(target=read, args=(router,))
    slow.start()
    assert ways["a"].entered.wait(20)
    router.switch("bb")
    read(router)
    assert router.stretch() is None
    ways["a"].go.set()
    slow.join(20)
    read(router)
    stretch = router.stretch()
    assert (stretch.route, stretch.brought.shards) == ("bb", 1)


def test_the_first_shards_of_a_new_route_warm_it_up(router):
    router.switch("bb", warm_up=2)
    read(router)
    read(router)
    assert router.stretch() is None
    read(router)
    assert router.stretch().brought.shards == 1


def test_a_stray_interrupts_a_stretch(router):
    router.restart()
    read(router)
    router.once("bb")
    read(router)
    assert router.stretch() is None
    read(router)
    assert router.stretch().brought.shards == 1


def test_failures_are_no_part_of_it(router, ways):
    router.restart()
    ways["a"].read = lambda job, sleep: (_ for _ in ()).throw(KeyError("broken"))
    with pytest.raises(KeyError):
        read(router)
    assert router.stretch() is None
