"""The thread that loads models serves accounts in turns."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

import pytest

from swift_hapi.engine.loaded import LoadedModel
from swift_hapi.engine.turns import ON_BEHALF_OF, Turns
from swift_hapi.engine.workers import Workers, call
from swift_hapi.protocol.errors import EngineBusy


class Line:
    """Turns on one thread that is held up until :meth:`go`; ``done`` has what it did."""

    def __init__(self):
        self.turns = Turns(ThreadPoolExecutor(1))
        self.done: list[str] = []
        self._gate = threading.Event()
        started = threading.Event()

        def hold() -> None:
            started.set()
            assert self._gate.wait(60)

        self.turns.submit(hold)
        assert started.wait(60)

    def add(self, account: str, what: str) -> Future:
        token = ON_BEHALF_OF.set(account)
        try:
            return self.turns.submit(self.done.append, what)
        finally:
            ON_BEHALF_OF.reset(token)

    def go(self, *futures: Future) -> list[str]:
        self._gate.set()
        for future in futures:
            future.result(60)
        return self.done


@pytest.fixture
def line():
    made = Line()
    yield made
    made.go()
    made.turns.shutdown()


def test_one_account_with_much_work_does_not_delay_others(line):
    many = [line.add("many", f"m{i}") for i in range(4)]
    others = [line.add("a", "a0"), line.add("a", "a1"), line.add("b", "b0")]
    assert line.go(*many, *others) == ["m0", "a0", "b0", "m1", "a1", "m2", "m3"]


def test_who_comes_back_stands_at_the_end(line):
    again: list[Future] = []
    first = line.turns.submit(lambda: again.append(line.add("", "again")))
    waiting = [line.add("a", "a0"), line.add("b", "b0")]
    line.go(first, *waiting)
    again[0].result(60)
    assert line.done == ["a0", "b0", "again"]


def test_work_is_done_in_order_within_an_account(line):
    futures = [line.add("a", str(i)) for i in range(5)]
    assert line.go(*futures) == ["0", "1", "2", "3", "4"]


def test_cancelled_work_takes_no_turn(line):
    dropped = [line.add("a", "x"), line.add("a", "y")]
    kept = [line.add("a", "a0"), line.add("b", "b0")]
    assert all(future.cancel() for future in dropped)
    assert line.go(*kept) == ["a0", "b0"]


def test_errors_go_to_whoever_waits(line):
    failing = line.turns.submit(lambda: 1 / 0)
    fine = line.add("a", "a0")
    line.go(fine)
    with pytest.raises(ZeroDivisionError):
        failing.result(60)


def test_shutdown_drops_what_is_queued(line):
    left = line.add("a", "a0")
    line.turns.shutdown(wait=False, cancel_futures=True)
    line.go()
    with pytest.raises(CancelledError):
        left.result(60)
    with pytest.raises(RuntimeError):
        line.add("a", "a1")
    assert line.done == []


def test_tasks_work_on_behalf_of_whoever_started_them():
    """From the request to the thread, across tasks."""
    workers = Workers(cpus=1, decoders=1)
    order: list[str] = []
    gate = threading.Event()

    async def request(account: str) -> None:
        ON_BEHALF_OF.set(account)
        await asyncio.create_task(call(workers.load, order.append, account))

    async def story():
        held = asyncio.create_task(call(workers.load, gate.wait, 60))
        await asyncio.sleep(0)
        names = ["many"] * 3 + ["other"]
        tasks = [asyncio.create_task(request(name)) for name in names]
        for _ in range(5):
            await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(held, *tasks)

    try:
        asyncio.run(asyncio.wait_for(story(), 60))
    finally:
        workers.shutdown()
    assert order == ["many", "other", "many", "many"]


def test_what_waits_is_counted_by_account(line):
    for what in ("a1", "a2"):
        line.add("a", what)
    token = ON_BEHALF_OF.set("a")
    try:
        assert line.turns.pending() == 2
        ON_BEHALF_OF.set("b")
        assert line.turns.pending() == 0
    finally:
        ON_BEHALF_OF.reset(token)


def test_an_account_leaves_only_so_much_to_be_made(line, models):
    """Shapes that are looked at go on when nobody waits for them; there is an end to it."""
    workers = Workers(cpus=1, decoders=1)
    workers.load = line.turns
    model = LoadedModel(models[0].extractor, workers)

    async def ask(side: int) -> str:
        try:
            await asyncio.wait_for(model.cut("avgpool", (3, side, side)), 0.001)
        except asyncio.TimeoutError:
            return "left"
        except EngineBusy:
            return "busy"

    async def tell() -> list[str]:
        ON_BEHALF_OF.set("many")
        said = [await ask(side) for side in range(70, 90)]
        ON_BEHALF_OF.set("other")
        said.append(await ask(100))
        assert await ask(100) == "left"  # it waits already, and no second time
        line.go()
        await model.cut("avgpool", (3, 100, 100))
        return said

    said = asyncio.run(asyncio.wait_for(tell(), 120))
    workers.shutdown()
    assert said == ["left"] * 8 + ["busy"] * 12 + ["left"]
