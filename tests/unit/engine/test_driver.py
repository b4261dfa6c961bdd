"""The driver with a real controller and real threads; the networks are plain functions."""

from __future__ import annotations

import asyncio
import threading

import pytest

from swift_hapi.engine.control import Ticket
from swift_hapi.protocol.errors import EngineBusy, HapiError, ModelNotFound, TooLarge
from tests.unit.engine.driving import WEIGHTS, World, lane_of, story


def test_requests_of_many_share_micro_batches(workers):
    async def tell():
        world = World(workers, batch_wait=1.0)
        world.networks.gate = threading.Event()
        first = asyncio.create_task(world.ask("first", [1]))
        await asyncio.to_thread(world.networks.running.wait, 60)
        small = [asyncio.create_task(world.ask(f"r{i}", [10 + i])) for i in range(8)]
        while world.snapshot["lanes"][0]["waiting"] + world.snapshot["lanes"][0]["running"] < 9:
            await asyncio.sleep(0.001)
        world.networks.gate.set()
        return await first, await asyncio.gather(*small), world

    first, small, world = story(tell())
    assert first.tolist() == [1]
    assert [rows.tolist() for rows in small] == [[10 + i] for i in range(8)]
    # Eight requests in no more than three micro-batches (one was under way already).
    assert len(world.networks.order) <= 4
    assert world.snapshot["used_bytes"] == WEIGHTS


def test_an_account_with_many_requests_does_not_delay_another(workers):
    async def tell():
        world = World(workers)
        world.networks.gate = threading.Event()
        ended = []

        async def one(name, account):
            await world.ask(name, range(8), account=account)
            ended.append(name)

        flood = [asyncio.create_task(one(f"f{i}", "flood")) for i in range(6)]
        await asyncio.to_thread(world.networks.running.wait, 60)
        single = asyncio.create_task(one("single", "other"))
        while world.snapshot["admitted"] < 7:
            await asyncio.sleep(0.001)
        world.networks.gate.set()
        await asyncio.gather(single, *flood)
        return ended

    assert story(tell()).index("single") <= 2


def test_a_failed_allocation_is_retried_with_less(workers):
    async def tell():
        world = World(workers)
        world.networks.most = 1
        rows = await world.ask("r", range(9), lane_of(most=8))
        return rows, world

    rows, world = story(tell())
    assert rows.tolist() == list(range(9))
    assert {size for _, size in world.networks.order} == {1}
    assert world.driver.failures >= 3
    assert world.snapshot["reserved_bytes"] == 0


def test_what_never_fits_into_memory_is_told(workers):
    async def tell():
        world = World(workers)
        world.networks.most = 0
        with pytest.raises(EngineBusy, match="not even one sample"):
            await world.ask("r", range(3))
        with pytest.raises(TooLarge, match="exceed"):
            await world.ask("s", [1], lane_of("s", activation_bytes=10**9))
        with pytest.raises(TooLarge, match="for objects"):
            await world.ask("t", [1], size=10**9)
        return world

    world = story(tell())
    assert world.snapshot["admitted"] == 0
    assert world.snapshot["input_bytes"] == world.snapshot["output_bytes"] == 0


@pytest.mark.parametrize("kind", ["missing", "broken"])
def test_a_network_that_fails_concerns_its_own_requests(workers, kind):
    async def tell():
        world = World(workers)
        if kind == "missing":
            world.networks.missing.add("sha256:a")
        else:
            world.networks.broken["sha256:a"] = HapiError("a bug")
        good = asyncio.create_task(world.ask("good", range(6), lane_of("b")))
        with pytest.raises(ModelNotFound if kind == "missing" else HapiError):
            await world.ask("bad", range(6))
        assert (await good).tolist() == list(range(6))
        # It is not taken for loaded, and can be had when it is there again.
        world.networks.missing.clear()
        world.networks.broken.clear()
        assert (await world.ask("again", [3])).tolist() == [3]

    story(tell())


def test_who_leaves_is_dropped_and_the_others_go_on(workers):
    async def tell():
        world = World(workers)
        world.networks.gate = threading.Event()
        leaver = asyncio.create_task(world.ask("leaver", range(40)))
        await asyncio.to_thread(world.networks.running.wait, 60)
        stayer = asyncio.create_task(world.ask("stayer", range(4)))
        while world.snapshot["admitted"] < 2:
            await asyncio.sleep(0.001)
        leaver.cancel()
        await asyncio.wait({leaver})
        world.networks.gate.set()
        rows = await stayer
        while world.snapshot["reserved_bytes"]:
            await asyncio.sleep(0.001)
        return rows, world

    rows, world = story(tell())
    assert rows.tolist() == [0, 1, 2, 3]
    # What was under way when it left may have finished; the rest was never run.
    assert sum(size for _, size in world.networks.order) <= 4 + 2 * 4
    assert world.snapshot["input_bytes"] == world.snapshot["output_bytes"] == 0


def test_a_micro_batch_is_given_up_when_all_of_its_requests_are_gone(workers):
    async def tell():
        world = World(workers)
        world.networks.gate = threading.Event()
        leaver = asyncio.create_task(world.ask("leaver", range(4)))
        await asyncio.to_thread(world.networks.running.wait, 60)
        leaver.cancel()
        await asyncio.wait({leaver})
        stayer = asyncio.create_task(world.ask("stayer", range(4)))
        world.networks.gate.set()
        rows = await stayer
        while world.snapshot["reserved_bytes"]:
            await asyncio.sleep(0.001)
        return rows, world

    rows, world = story(tell())
    assert rows.tolist() == [0, 1, 2, 3]
    assert world.networks.given_up == 1
    assert [size for _, size in world.networks.order] == [4]
    assert world.snapshot["input_bytes"] == world.snapshot["output_bytes"] == 0
    assert world.driver.failures == 0


def test_admission_waits_its_time_and_no_longer(workers):
    async def tell():
        world = World(workers, places=1, room=1)
        driver = world.driver
        await driver.admit(Ticket("a", "x", 10), 5.0)
        with pytest.raises(EngineBusy, match="admission time") as caught:
            await driver.admit(Ticket("b", "y", 10), 0.01)
        assert caught.value.retry_after >= 1
        waiting = asyncio.create_task(driver.admit(Ticket("c", "y", 10), 30.0))
        await asyncio.sleep(0)
        with pytest.raises(EngineBusy, match="1 wait"):
            await driver.admit(Ticket("d", "z", 10), 30.0)
        driver.depart("a")
        await waiting
        driver.depart("c")
        assert world.snapshot["admitted"] == 0

    story(tell())


def test_weights_are_dropped_for_others_and_come_back(workers):
    async def tell():
        # Room for one network at a time.
        world = World(workers, budget=2000)
        lanes = {name: lane_of(name, most=2) for name in "ab"}
        rows = [
            await world.ask(f"{name}{turn}", [turn], lanes[name], size=10)
            for turn in range(3)
            for name in "ab"
        ]
        assert len(world.networks.loaded) == 1
        return [row.tolist() for row in rows]

    assert story(tell()) == [[0], [0], [1], [1], [2], [2]]


def test_weights_held_before_they_are_loaded(workers):
    async def tell():
        world = World(workers, budget=4000)
        driver = world.driver
        assert driver.hold_weights("sha256:m", 900)
        assert not driver.hold_weights("sha256:m", 900)
        assert not driver.hold_weights("sha256:n", 3200)
        assert world.snapshot["weight_bytes"] == 900
        driver.settle_weights("sha256:m", 950)
        assert world.snapshot["weight_bytes"] == 950
        assert driver.hold_weights("sha256:o", 100)
        driver.settle_weights("sha256:o", 0)
        assert world.snapshot["weight_bytes"] == 950

    story(tell())


def test_a_network_that_takes_for_ever_makes_way_for_other_accounts(workers):
    async def tell():
        world = World(workers, patience=0.01)
        end = world.networks.endless["sha256:slow"] = threading.Event()
        slow = [
            # Two micro-batches of one lane, and more lanes of the same account.
            asyncio.create_task(world.ask(f"slow{i}", range(8), lane, account="slow"))
            for i, lane in enumerate((lane_of("slow"), lane_of("b"), lane_of("c")))
        ]
        await asyncio.to_thread(world.networks.running.wait, 60)
        for name in ("first", "second"):
            rows = await world.ask(name, [1, 2], lane_of("other"), account=name)
            assert rows.tolist() == [1, 2]
        assert not slow[0].done()
        end.set()
        rows = await asyncio.gather(*slow)
        return rows, world

    rows, world = story(tell())
    assert [each.tolist() for each in rows] == [list(range(8))] * 3
    assert world.snapshot["reserved_bytes"] == 0


def test_a_slow_account_starts_nothing_more_meanwhile(workers):
    async def tell():
        world = World(workers, patience=0.01)
        end = world.networks.endless["sha256:slow"] = threading.Event()
        slow = asyncio.create_task(world.ask("slow", [1], lane_of("slow"), account="a"))
        while not world.driver._slow_accounts():
            await asyncio.sleep(0.001)
        again = asyncio.create_task(world.ask("again", [1], lane_of("b"), account="a"))
        await world.ask("other", [1], lane_of("c"))
        ran = [digest for digest, _ in world.networks.order]
        end.set()
        await asyncio.gather(slow, again)
        return ran

    assert story(tell()) == ["c"]
