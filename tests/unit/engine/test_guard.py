"""Work that ends with its client or its time; threads whose work can be taken back."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from swift_hapi.engine.guard import ClientGone, guarded
from swift_hapi.engine.workers import call
from swift_hapi.protocol.errors import BadCut, DeadlineExceeded


def test_result_and_error_pass_through():
    async def good():
        return 5

    async def bad():
        raise BadCut("none")

    async def story():
        assert await guarded(good(), asyncio.Event(), 10) == 5
        with pytest.raises(BadCut):
            await guarded(bad(), asyncio.Event(), 10)

    asyncio.run(story())


@pytest.mark.parametrize("leave", [True, False])
def test_work_has_ended_when_the_guard_returns(leave):
    ended = []

    async def work():
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    async def story():
        gone = asyncio.Event()
        if leave:
            asyncio.get_running_loop().call_later(0.01, gone.set)
        with pytest.raises(ClientGone if leave else DeadlineExceeded):
            await guarded(work(), gone, 60 if leave else 0.01)
        assert ended == [True]

    asyncio.run(story())


def test_cancelled_work_leaves_the_threads_queue_but_is_waited_for_when_it_runs():
    running, may_end = threading.Event(), threading.Event()
    ran = []

    def long():
        running.set()
        may_end.wait(60)
        ran.append("long")

    async def story():
        with ThreadPoolExecutor(1) as executor:
            first = asyncio.create_task(call(executor, long))
            second = asyncio.create_task(call(executor, ran.append, "queued"))
            await asyncio.to_thread(running.wait, 60)
            first.cancel()
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            assert not first.done()
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert ran == ["long"]

    asyncio.run(story())


def test_errors_come_out_of_threads():
    def bad():
        raise BadCut("none")

    async def story():
        with ThreadPoolExecutor(1) as executor:
            with pytest.raises(BadCut):
                await call(executor, bad)

    asyncio.run(story())
