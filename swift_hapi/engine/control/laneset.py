"""The lanes of one device, their work, and the plan that divides memory among them.

The plan (:mod:`~swift_hapi.engine.control.plan`) is made anew, at the next question, whenever
something happened that could change it: while every lane has all it can use, most arrivals and
departures cannot.

No lane starves. Lanes that hold memory keep it for a turn (``turn_seconds`` or ``turn_batches``)
so that weights are not loaded for single micro-batches; then those whose accounts received least
service come first. A lane passed over ``patience`` times for each busy lane goes before all
others, and if it does not fit, memory is cleared for it.
"""

from __future__ import annotations

import math

from swift_hapi.engine.control.fairness import AccountClock
from swift_hapi.engine.control.lanes import Lane
from swift_hapi.engine.control.ledger import Ledger
from swift_hapi.engine.control.plan import LaneView, Plan, solve
from swift_hapi.engine.control.queueing import Job, Stage
from swift_hapi.engine.control.types import ControlConfig, LaneKey, LaneSpec

_IDLE_LANES = 256


class LaneSet:
    """:param clock: what each account had, shared by all devices
    :param max_lanes: lanes that hold memory at once, None for as many as fit
    """

    def __init__(
        self, config: ControlConfig, ledger: Ledger, clock: AccountClock, max_lanes: int | None
    ):
        self.config = config
        self.ledger = ledger
        self.max_lanes = max_lanes
        self.clock = clock
        self.lanes: dict[LaneKey, Lane] = {}
        self.busy: dict[LaneKey, Lane] = {}
        self.jobs: dict[str, Job] = {}
        self.solves = 0
        self._plan = Plan()
        self._dirty = False
        self._order = 0

    # -- work comes and goes ------------------------------------------------------------------

    def lane(self, spec: LaneSpec) -> Lane:
        """The lane of ``spec.key``; what was learnt about it is kept while it is idle."""
        lane = self.lanes.get(spec.key)
        if lane is None:
            if len(self.lanes) >= _IDLE_LANES + len(self.busy):
                idle = next(key for key in self.lanes if key not in self.busy)
                del self.lanes[idle]
            lane = self.lanes[spec.key] = Lane(
                spec, self.config.depth, self._order, self.config.batch_seconds
            )
            self._order += 1
        return lane

    def working_digests(self) -> set[str]:
        """Digests of lanes that have work and hold memory: their weights are not idle."""
        return {key.digest for key in self._plan.targets if key in self.busy}

    @property
    def need(self) -> int:
        """Bytes with which each lane that has work could run alone."""
        return max((lane.need for lane in self.busy.values()), default=0)

    def add(self, job: Job, now: float) -> None:
        """Queue a seated job's samples."""
        lane = job.lane = self.lane(job.spec)
        job.stage = Stage.QUEUED
        job.since = now
        job.ranges.append((0, job.samples))
        self.jobs[job.ticket.id] = job
        self.clock.enter(job.account)
        if not lane.total:
            lane.passed = 0
            lane.order = self._order
            self._order += 1
            self.busy[lane.key] = lane
        lane.queue.push(job)
        lane.add(job.account, job.samples)
        if not self._plan.satisfied or self._plan.targets.get(lane.key, 0) < lane.limit:
            self._dirty = True
        self.memory_changed()

    def remove(self, job: Job, stage: Stage) -> None:
        """Take a queued job's waiting samples out; those under way finish on their own."""
        count = job.lane.queue.remove(job)
        self.ended(job, stage)
        self.subtract(job.lane, job.account, count)

    def ended(self, job: Job, stage: Stage) -> None:
        """A queued job has nothing more to run."""
        job.stage = stage
        del self.jobs[job.ticket.id]
        self.clock.leave(job.account)

    def subtract(self, lane: Lane, account: str, count: int) -> None:
        """Samples of ``account`` are done or dropped."""
        lane.add(account, -count)
        if not lane.total:
            del self.busy[lane.key]
            lane.turn = None
            lane.passed = 0
        self._dirty = self._dirty or not self._plan.satisfied

    def changed(self) -> None:
        """What is known of a lane, or whose turn it is, changed: plan again."""
        self._dirty = True

    def memory_changed(self) -> None:
        """Held bytes came or went: plan again if the plan no longer fits, or could grow."""
        if not self._plan.satisfied or self._plan.total > self._available():
            self._dirty = True

    # -- the plan -----------------------------------------------------------------------------

    def _available(self) -> int:
        return self.ledger.budget - self.ledger.held - self.ledger.pending(self.need)

    def overdue(self, lane: Lane) -> bool:
        """Passed over so often that fairness of accounts has to wait."""
        return lane.passed >= self.config.patience * len(self.busy)

    def _precedence(self, lane: Lane) -> tuple:
        if lane.turn is not None:
            return 0, 0, 0.0, lane.order
        if self.overdue(lane):
            return 1, -lane.passed, 0.0, lane.order
        return 2, 0, self.clock.first(lane.unfinished), lane.order

    def plan(self) -> Plan:
        """How the device's memory is divided now."""
        if not self._dirty:
            return self._plan
        self._dirty = False
        self.solves += 1
        views = [
            LaneView(
                lane.key,
                lane.spec.weight_bytes,
                lane.spec.workspace_bytes,
                lane.sample_cost,
                min(lane.least, lane.total),
                min(lane.limit, lane.total),
                lane.unfinished,
                lane.turn is None and self.overdue(lane),
            )
            for lane in sorted(self.busy.values(), key=self._precedence)
        ]
        self._plan = solve(self._available(), views, self.max_lanes)
        for key, lane in self.busy.items():
            if key not in self._plan.targets:
                lane.turn = None
            elif lane.turn is None:
                lane.turn = (0.0, 0)
        return self._plan

    def calibrate(self, key: LaneKey, activation_bytes: int) -> None:
        """Replace a lane's per-sample bytes; nothing when the lane is unknown."""
        if key in self.lanes:
            self.lanes[key].calibrate(activation_bytes)
            self.changed()

    def backlog(self) -> float:
        """Estimated seconds of all unfinished samples."""
        return math.fsum(lane.total * lane.sample_seconds for lane in self.busy.values())
