"""Pools and admission control: pure asyncio, no engine."""

from __future__ import annotations

import asyncio

import pytest

from swift_hapi.engine.admission import Admission, Shares
from swift_hapi.engine.pools import Pool
from swift_hapi.protocol.errors import AccountLimit, EngineBusy, TooLarge


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_first_come_first_served():
    async def story():
        pool = Pool(10)
        order = []

        async def take(name: str, amount: int):
            await pool.acquire(amount)
            order.append(name)

        await pool.acquire(8)
        tasks = [asyncio.create_task(take(*who)) for who in (("large", 9), ("small", 1))]
        await settle()
        # The small one would fit, but may not overtake.
        assert order == [] and pool.waiting == 2
        pool.release(8)
        await settle()
        assert order == ["large", "small"]
        assert pool.used == [10]
        await asyncio.gather(*tasks)

    asyncio.run(story())


def test_giving_up_lets_the_next_one_in():
    async def story():
        pool = Pool(10)
        await pool.acquire(8)
        large = asyncio.create_task(pool.acquire(9))
        small = asyncio.create_task(pool.acquire(2))
        await settle()
        large.cancel()
        await settle()
        assert small.done() and pool.used == [10] and pool.waiting == 0

    asyncio.run(story())


def test_timeout_leaves_nothing_behind():
    async def story():
        pool = Pool(1)
        await pool.acquire(1)
        with pytest.raises(asyncio.TimeoutError):
            await pool.acquire(1, timeout=0.01)
        pool.release(1)
        assert pool.used == [0] and pool.waiting == 0
        await pool.acquire(1, timeout=0.01)

    asyncio.run(story())


def test_granted_and_cancelled_in_one_turn_is_given_back():
    async def story():
        pool = Pool(1)
        await pool.acquire(1)
        waiter = asyncio.create_task(pool.acquire(1))
        await settle()
        pool.release(1)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert pool.used == [0]

    asyncio.run(story())


def test_a_vector_is_granted_whole():
    async def story():
        pool = Pool(2, 100)
        await pool.acquire(1, 80)
        waiter = asyncio.create_task(pool.acquire(1, 30))
        await settle()
        assert pool.used == [1, 80]
        pool.release(1, 80)
        await waiter
        assert pool.used == [1, 30]
        with pytest.raises(ValueError, match="exceeds"):
            await pool.acquire(3, 1)

    asyncio.run(story())


def admission(places: int = 2, account_concurrency: int = 2, budget: int = 400) -> Admission:
    return Admission(places, account_concurrency, Shares.of(budget), retry_after=3)


def test_shares_add_up():
    for budget in (400, 401, 403, 7):
        shares = Shares.of(budget)
        assert shares.objects + shares.work + shares.activations == budget


def test_release_gives_everything_back_once():
    async def story():
        gate = admission()
        ticket = await gate.admit("a", 60, timeout=1)
        await ticket.work_memory(150)
        assert gate.queue.used == [1, 60] and gate.work.used == [150]
        ticket.release()
        ticket.release()
        assert gate.queue.used == [0, 0] and gate.work.used == [0]
        assert gate.admitted == 0

    asyncio.run(story())


def test_accounts_are_limited_apart():
    async def story():
        gate = admission(places=9)
        tickets = [await gate.admit("a", 1, timeout=1) for _ in range(2)]
        with pytest.raises(AccountLimit) as caught:
            await gate.admit("a", 1, timeout=1)
        assert caught.value.retry_after == 3
        await gate.admit("b", 1, timeout=1)
        tickets[0].release()
        await gate.admit("a", 1, timeout=1)

    asyncio.run(story())


def test_waiting_counts_for_the_account():
    async def story():
        gate = admission(places=1)
        ticket = await gate.admit("a", 1, timeout=1)
        waiter = asyncio.create_task(gate.admit("a", 1, timeout=9))
        await settle()
        with pytest.raises(AccountLimit):
            await gate.admit("a", 1, timeout=1)
        waiter.cancel()
        await settle()
        with pytest.raises(EngineBusy):
            await gate.admit("a", 1, timeout=0)
        ticket.release()
        await gate.admit("a", 1, timeout=1)

    asyncio.run(story())


def test_busy_by_memory_and_by_waiters():
    async def story():
        gate = admission(places=2, account_concurrency=9)
        await gate.admit("a", 100, timeout=1)
        with pytest.raises(EngineBusy, match="100 of 100 bytes") as caught:
            await gate.admit("a", 1, timeout=0.01)
        assert caught.value.retry_after == 3
        waiters = [asyncio.create_task(gate.admit("a", 1, timeout=9)) for _ in range(2)]
        await settle()
        with pytest.raises(EngineBusy, match="too many"):
            await gate.admit("a", 1, timeout=9)
        for waiter in waiters:
            waiter.cancel()

    asyncio.run(story())


def test_what_never_fits():
    async def story():
        gate = admission()
        with pytest.raises(TooLarge, match="101 bytes"):
            await gate.admit("a", 101, timeout=1)
        ticket = await gate.admit("a", 1, timeout=1)
        with pytest.raises(TooLarge, match="201 bytes"):
            await ticket.work_memory(201)

    asyncio.run(story())
