"""Micro-batches one by one, with real threads; the networks are plain functions."""

from __future__ import annotations

import asyncio
import threading

import pytest

from swift_hapi.engine.compute import Slot
from swift_hapi.engine.device import Device
from swift_hapi.engine.flights import Flights
from swift_hapi.protocol.errors import ModelNotFound
from tests.unit.engine.driving import Networks, job_of, lane_of, story


def slots_of(job) -> list[Slot]:
    return [Slot(job, at) for at in range(len(job.work.samples))]


def test_those_of_a_lane_go_through_in_the_order_in_which_they_lined_up(workers):
    async def tell():
        networks, lane = Networks(), lane_of()
        flights = Flights(workers, Device("cpu"), networks)
        jobs = [job_of("first", [1, 2, 3]), job_of("second", [4])]
        places = [flights.line_up(lane.key) for _ in jobs]
        # The later one is begun first, and has to wait all the same.
        later, first = (
            asyncio.create_task(flights.fly(slots_of(jobs[at]), lane, places[at]))
            for at in (1, 0)
        )
        ends = await asyncio.gather(first, later)
        assert [end.shortage for end in ends] == [None, None]
        assert all(end.cost.infer > 0 for end in ends)
        assert [job.rows.ravel().tolist() for job in jobs] == [[1, 2, 3], [4]]
        assert networks.order == [("a", 3), ("a", 1)]
        # Nobody is in line any more.
        assert flights.line_up(lane.key).before is None

    story(tell())


def test_other_lanes_do_not_wait(workers):
    async def tell():
        networks = Networks()
        flights = Flights(workers, Device("cpu"), networks)
        ahead, lane = lane_of("a"), lane_of("b")
        flights.line_up(ahead.key)
        job = job_of("r", [5])
        await flights.fly(slots_of(job), lane, flights.line_up(lane.key))
        assert job.rows.ravel().tolist() == [5]

    story(tell())


def test_a_shortage_is_for_the_caller_and_no_fault_of_the_request(workers):
    async def tell():
        networks, lane, job = Networks(), lane_of(), job_of("r", [1, 2])
        networks.most = 1
        flights = Flights(workers, Device("cpu"), networks)
        end = await flights.fly(slots_of(job), lane, flights.line_up(lane.key))
        assert "allocate" in end.shortage and (end.cost.infer, end.cost.decode) == (0, 0)
        assert not job.over
        end = await flights.fly(slots_of(job)[:1], lane, flights.line_up(lane.key))
        assert end.shortage is None and job.rows[0] == 1

    story(tell())


def test_any_other_error_is_told_to_all_requests_once_and_the_line_moves_on(workers):
    async def tell():
        networks, lane = Networks(), lane_of()
        networks.missing.add(lane.key.digest)
        flights = Flights(workers, Device("cpu"), networks)
        jobs = [job_of("a", [1, 2]), job_of("b", [3])]
        slots = [slot for job in jobs for slot in slots_of(job)]
        place = flights.line_up(lane.key)
        end = await flights.fly(slots, lane, place)
        assert end.shortage is None and end.cost.infer == 0
        assert place.through.done()
        for job in jobs:
            with pytest.raises(ModelNotFound, match="gone or damaged"):
                await job.result()

    story(tell())


def test_a_flight_that_is_cancelled_leaves_the_line(workers):
    async def tell():
        networks, lane = Networks(), lane_of()
        networks.gate = threading.Event()
        flights = Flights(workers, Device("cpu"), networks)
        place = flights.line_up(lane.key)
        flight = asyncio.create_task(flights.fly(slots_of(job_of("r", [1])), lane, place))
        await asyncio.to_thread(networks.running.wait, 60)
        flight.cancel()
        networks.gate.set()
        await asyncio.wait({flight})
        assert flight.cancelled() and place.through.done()
        assert flights.line_up(lane.key).before is None

    story(tell())
