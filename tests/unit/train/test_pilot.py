from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from hapi_compute.data.batches import Batch, Part
from hapi_compute.data.routing import Brought, Stretch
from hapi_compute.data.timings import Timings
from hapi_compute.plan.candidates import Candidate
from hapi_compute.plan.choice import Chooser
from hapi_compute.plan.costs import Demand, Setting
from hapi_compute.store.occupancy import FETCH, NETWORK, STORAGE, Moment
from hapi_compute.train.pilot import Pilot, Watch, observed, single
from hapi_compute.train.plan import Plan
from swift_hapi.graph.cuts import Cut

CUT = Cut(1, "cut", (4,), 16, True)
SETTING = Setting(
    batch=4, shard=8, in_flight=2, window=4, iterations=100, epochs=2, cpus=1, decoders=1
)


def batch(*cuts: str | None, rows=2) -> Batch:
    parts = tuple(
        Part(cut, np.arange(rows) + i * rows, np.zeros((rows, 4), "f4"))
        for i, cut in enumerate(cuts)
    )
    return Batch(parts, np.zeros(rows * len(cuts), np.int64), ("",) * rows * len(cuts))


def stretch(
    route="cut", shards=5, seconds=10.0, fetch=8.0, storage=6.0, network=4.0, size=8 << 20
):
    brought = Brought(
        shards=shards, samples=40, requests=5, bytes=size, cpu=0.4, waited=9.0, sent=4.0,
        storage={} if route == "raw" else {"queue": 3.0, "infer": 5.0, "decode": 3.0},
    )  # fmt: skip
    busy = {FETCH: fetch, STORAGE: storage, NETWORK: network}
    return Stretch(route, brought, Moment(seconds, busy, {}))


def watch(seconds=0.1, batches=6, cut="cut") -> Watch:
    timings = Timings()
    seen = Watch(timings)
    for _ in range(batches):
        seen.add(batch(cut, rows=4), cut, seconds)
        timings.add("frozen", 1.0, cpu=0.04)
        timings.add("decode", 1.0, cpu=0.02)
    return seen


def test_the_slower_of_coming_and_training_is_the_iteration():
    seen = observed(stretch(), watch(seconds=0.1), 4, raw=False)
    assert seen.time == pytest.approx(4 * 8.0 / 40) and seen.client is None
    seen = observed(stretch(), watch(seconds=2.0), 4, raw=False)
    assert seen.time == pytest.approx(2.0) == pytest.approx(seen.client)


def test_stages_of_a_pushdown():
    seen = observed(stretch(), watch(), 4, raw=False)
    assert seen.storage == pytest.approx(6.0 / 40)  # Less than 8 s of the tier's own account.
    assert seen.receive == pytest.approx(0.01) and seen.decode is None
    assert seen.bandwidth == pytest.approx((8 << 20) / 4.0)
    # Answers that queue on the network: the tier's own account is right.
    seen = observed(stretch(storage=9.5), watch(), 4, raw=False)
    assert seen.storage == pytest.approx(8.0 / 40)


def test_stages_of_raw():
    seen = observed(stretch("raw"), watch(cut=None), 4, raw=True)
    # The first of the six batches only starts the count.
    assert seen.storage is None and seen.decode == pytest.approx(6 * 0.02 / 20)


def test_small_transfers_do_not_tell_the_bandwidth():
    assert observed(stretch(network=0.1, size=1000), watch(), 4, False).bandwidth is None
    assert observed(stretch(network=4.0, size=1000), watch(), 4, False).bandwidth == 250


def test_one_shard_beside_others():
    brought = stretch().brought
    assert single(brought, raw=True).bandwidth == pytest.approx((8 << 20) / 4.0)
    assert single(brought, raw=False).storage == pytest.approx(8.0 / 40)


def test_batches_of_two_cuts_do_not_count():
    seen = watch(batches=3)
    seen.add(batch("cut", None), "cut", 1.0)
    assert (seen.batches, seen.samples, seen.busy) == (0, 0, 0.0)
    seen.add(batch("cut"), "cut", 1.0)
    seen.add(batch("cut"), "cut", 1.5)
    assert (seen.batches, seen.samples, seen.busy) == (2, 2, 1.5)


class Routes:
    """What a pilot does with a router."""

    def __init__(self, found=None):
        self.found = found
        self.switched: list[str] = []
        self.looks: list[str] = []
        self.stray: list = []

    def stretch(self):
        return self.found

    def restart(self):
        pass

    def switch(self, name, warm_up=0):
        self.switched.append(name)

    def once(self, name):
        self.looks.append(name)

    def strays(self):
        found, self.stray = self.stray, []
        return found


@pytest.fixture
def flight():
    """A pilot on the push-down, which its chooser thinks is a little faster than raw."""
    demands = {
        "raw": Demand(0.0, 0.01, 50_000, 0.0005, 0.002, 0.10),
        "cut": Demand(0.09, 0.01, 1_000, 0.0005, 0.0, 0.01),
    }
    chooser = Chooser(demands, SETTING, 1e7)
    candidates = {"raw": Candidate(None), "cut": Candidate(CUT)}
    routes, moved, clock = Routes(), [], SimpleNamespace(now=0.0)
    plan = Plan(candidates[chooser.current], "")
    assert plan.split == "cut"
    pilot = Pilot(
        plan, routes, Timings(), candidates, 4, 2, chooser, moved.append, lambda: clock.now
    )
    return SimpleNamespace(pilot=pilot, plan=plan, routes=routes, moved=moved, clock=clock)


def fly(flight, batches=6, cut="cut"):
    for step in range(batches):
        flight.pilot.after(step, batch(cut, rows=4), 0.05)


def test_a_slow_pushdown_is_left_for_raw(flight):
    flight.routes.found = stretch(fetch=80.0, storage=79.0, seconds=81.0)
    fly(flight)
    assert flight.routes.switched == []  # Far from what was expected: once is not believed.
    fly(flight)
    assert flight.routes.switched == ["raw"] and flight.plan.mode == "raw"
    (move,) = flight.plan.history
    assert move.split == "raw" and move.measured["cut"] == pytest.approx(8.0)
    assert move.predicted["raw"] < move.predicted["cut"]
    assert [candidate.name for candidate in flight.moved] == ["raw"]


def test_a_good_pushdown_stays(flight):
    flight.routes.found = stretch(fetch=3.7, storage=3.6, network=0.01, seconds=3.8)
    fly(flight, 30)
    assert flight.routes.switched == [] and flight.plan.history == []
    assert flight.plan.measured["cut"] == pytest.approx(0.37)
    assert flight.plan.runner_up == "raw"


def test_too_little_is_no_observation(flight):
    flight.routes.found = stretch(fetch=80.0, storage=79.0, shards=3)
    fly(flight, 30)
    assert flight.plan.measured == {}


def test_a_silent_network_is_looked_at_now_and_then(flight):
    flight.clock.now += 5
    flight.pilot.after(0, batch("cut"), 0.05)
    assert flight.routes.looks == []
    flight.clock.now += 600
    flight.pilot.after(1, batch("cut"), 0.05)
    flight.pilot.after(2, batch("cut"), 0.05)
    assert flight.routes.looks == ["raw"]
    brought = Brought(shards=1, samples=8, requests=1, bytes=400_000, sent=0.1)
    for step in (3, 4):
        flight.routes.stray = [("raw", brought)]
        flight.pilot.after(step, batch("cut"), 0.05)
    assert flight.pilot._chooser.bandwidth == pytest.approx(4e6)


def test_a_network_that_seems_faster_is_looked_at_at_once(flight):
    slow = stretch(fetch=3.7, storage=3.6, network=0.2, seconds=3.8, size=2_000_000)
    flight.routes.found = slow  # Seems to carry what the profile said: nothing to see.
    fly(flight, 12)
    assert flight.routes.looks == []
    flight.routes.found = replace(slow, took=stretch(network=0.02, storage=3.6, fetch=3.7).took)
    fly(flight, 12)
    assert flight.routes.looks == ["raw"]  # Once, until the shard is there.
    brought = Brought(shards=1, samples=8, requests=1, bytes=400_000, sent=0.004)
    flight.routes.stray = [("raw", brought)]
    flight.clock.now += 0.1
    fly(flight, 1)
    assert flight.routes.looks == ["raw", "raw"]  # Far off: looked at again, and believed then.
    assert flight.pilot._chooser.bandwidth == pytest.approx(1e7)
    flight.routes.stray = [("raw", brought)]
    fly(flight, 30)
    assert flight.routes.looks == ["raw", "raw"]
    assert flight.pilot._chooser.bandwidth == pytest.approx(1e8)


def test_what_tells_nothing_of_the_network_gives_no_hint(flight):
    flight.routes.found = stretch(
        fetch=3.7, storage=3.6, network=0.0001, seconds=3.8, size=5 * 2048
    )
    fly(flight, 30)
    assert flight.routes.looks == []


def test_the_storage_tier_is_looked_at_soon_from_raw(flight):
    flight.routes.found = stretch(fetch=80.0, storage=79.0, seconds=81.0)
    fly(flight, 12)
    assert flight.plan.mode == "raw"
    flight.routes.found = None
    flight.clock.now += 0.1
    for step in range(3):
        flight.pilot.after(step, batch(None), 0.05)
    assert flight.routes.looks == ["cut"]


def test_without_a_chooser_it_measures(flight):
    pilot = Pilot(flight.plan, flight.routes, Timings(), {}, 4, 2)
    flight.routes.found = stretch()
    for step in range(6):
        pilot.after(step, batch("cut", rows=4), 0.05)
    assert flight.plan.measured["cut"] == pytest.approx(0.8)
    assert flight.routes.switched == [] and flight.routes.looks == []
