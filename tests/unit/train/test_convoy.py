from __future__ import annotations

from hapi_compute.data.timings import Timings
from hapi_compute.plan.candidates import Candidate
from hapi_compute.train.convoy import Convoy
from hapi_compute.train.pilot import Pilot
from hapi_compute.train.plan import Plan
from tests.unit.train.test_pilot import CUT, Routes, batch

CANDIDATES = {"raw": Candidate(None), "cut": Candidate(CUT)}


class World:
    """The first rank's numbers are on a list, one for each call."""

    def __init__(self, told: list[int] | None = None):
        self.told = told
        self.sent: list[int] = []

    def from_first(self, number: int) -> int:
        self.sent.append(number)
        return number if self.told is None else self.told.pop(0)


def fleet(world: World) -> tuple[Convoy, Pilot, Routes, list]:
    routes, moved = Routes(), []
    plan = Plan(CANDIDATES["raw"], "")
    pilot = Pilot(plan, routes, Timings(), CANDIDATES, 4, 2, None, moved.append)
    return Convoy(pilot, world, CANDIDATES), pilot, routes, moved


def test_what_the_first_rank_reads_by_is_what_all_read_by():
    convoy, pilot, routes, moved = fleet(World([0, 1, 1, 0]))
    for step in range(4):
        convoy.after(step, batch(None), 0.1)
    assert routes.switched == ["cut", "raw"] and [m.name for m in moved] == ["cut", "raw"]
    assert [(move.step, move.split) for move in pilot.plan.history] == [(2, "cut"), (4, "raw")]


def test_the_first_rank_tells_where_its_pilot_is():
    world = World()
    convoy, pilot, routes, _ = fleet(world)
    convoy.after(0, batch(None), 0.1)
    pilot.follow(1, "cut", "because")
    convoy.after(1, batch(None), 0.1)
    convoy.pause()
    # Told at every step, and to itself no news.
    assert world.sent == [0, 1] and routes.switched == ["cut"]


def test_a_rank_without_samples_goes_along():
    convoy, pilot, routes, _ = fleet(World([1] * 9))
    for step in range(9):
        convoy.after(step, batch(rows=0), 0.1)
    assert routes.switched == ["cut"] and pilot.plan.measured == {}
