"""Micro-batches of one device: which starts next, how large, and what its end teaches.

Starts obey both the plan's target and what is really free at the moment. Since the targets
together fit, a lane that is kept out by another's larger micro-batch under way gets in when that
one ends.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from swift_hapi.engine.control.lanes import Flight, Lane, even
from swift_hapi.engine.control.laneset import LaneSet
from swift_hapi.engine.control.ledger import Ledger
from swift_hapi.engine.control.queueing import Job, Stage
from swift_hapi.engine.control.types import Batch, ControlConfig, Pause


class Scheduler:
    """:param ids: source of micro-batch numbers, shared by all devices"""

    def __init__(
        self, index: int, config: ControlConfig, ledger: Ledger, lanes: LaneSet,
        ids: Iterator[int],
    ):
        self.index = index
        self.config = config
        self.ledger = ledger
        self.lanes = lanes
        self.flights: dict[int, Lane] = {}
        self._ids = ids

    def next_batch(
        self, now: float, coming: dict[str, int], without: Container[str] = frozenset()
    ) -> Batch | Pause:
        """The micro-batch to start now.

        :param coming: requests per digest that are admitted but not queued yet
        :param without: accounts; lanes where nobody else waits do not start
        """
        plan = self.lanes.plan()
        keep = self.lanes.working_digests()
        if any(lane.alone and lane.flights for lane in self.lanes.busy.values()):
            return Pause()
        ready = [
            lane
            for key in plan.targets
            if (lane := self.lanes.busy.get(key)) is not None
            and lane.queue.waiting
            and len(lane.flights) < lane.depth
            and not all(account in without for account in lane.queue.accounts)
        ]
        ready.sort(key=self._urgency)
        until = None
        for lane in ready:
            target = plan.targets[lane.key]
            size = self._size(lane, target, keep)
            if not size:
                if self.lanes.overdue(lane):
                    return Pause(until)
                continue
            wait = self._worth_waiting(lane, size, now, coming)
            if wait is not None:
                until = wait if until is None else min(until, wait)
                continue
            return self._start(lane, size, keep)
        return Pause(until)

    def _urgency(self, lane: Lane) -> tuple:
        if self.lanes.overdue(lane):
            return 0, -lane.passed, 0.0, lane.order
        return 1, 0, self.lanes.clock.first(lane.queue.accounts), lane.order

    def _size(self, lane: Lane, target: int, keep: set[str]) -> int:
        """Samples that can start now; 0 when less than the floor fits."""
        if lane.alone and self.flights:
            return 0
        if not lane.flights and self._lanes_full():
            return 0
        free = self.ledger.free + self.ledger.weights.evictable(keep)
        if lane.key.digest not in self.ledger.weights:
            free -= lane.spec.weight_bytes
        size = even(min(target, lane.queue.waiting, lane.fit(free)), lane.queue.waiting)
        return size if size >= min(lane.least, lane.queue.waiting) else 0

    def _lanes_full(self) -> bool:
        most = self.lanes.max_lanes
        return most is not None and most <= sum(
            1 for lane in self.lanes.busy.values() if lane.flights
        )

    def _worth_waiting(
        self, lane: Lane, size: int, now: float, coming: dict[str, int]
    ) -> float | None:
        """Until when to wait for a fuller micro-batch: briefly, and only if nothing is lost."""
        if size < lane.queue.waiting or size >= lane.limit:
            return None
        if not self.flights and not coming.get(lane.key.digest):
            return None
        until = lane.queue.oldest() + self.config.batch_wait
        return until if now < until else None

    def _start(self, lane: Lane, size: int, keep: set[str]) -> Batch:
        digest = lane.key.digest
        load = digest not in self.ledger.weights
        taken = lane.queue.take(size)
        charges: dict[str, float] = {}
        for job, part in taken:
            job.running += part.count
            seconds = part.count * lane.sample_seconds
            charges[job.account] = charges.get(job.account, 0.0) + seconds
        before = lane.reserved
        number = next(self._ids)
        lane.flights[number] = Flight(taken, size, lane.activation_bytes, charges)
        grown = lane.reserved - before
        self.ledger.clear(grown + (lane.spec.weight_bytes if load else 0), keep)
        if load:
            self.ledger.weights.add(digest, lane.spec.weight_bytes)
        self.ledger.weights.pin(digest)
        self.ledger.reserved += grown
        self.flights[number] = lane
        self.lanes.clock.charge(charges)
        for other in self.lanes.busy.values():
            if other.queue.waiting:
                other.passed += 1
        lane.passed = 0
        self._take_turn(lane, sum(charges.values()))
        parts = tuple(part for _, part in taken)
        return Batch(number, self.index, lane.key, parts, size, load, grown)

    def _take_turn(self, lane: Lane, seconds: float) -> None:
        spent, batches = lane.turn or (0.0, 0)
        lane.turn = (spent + seconds, batches + 1)
        over = lane.turn[0] >= self.config.turn_seconds or lane.turn[1] >= self.config.turn_batches
        if over and self.lanes.plan().waiting:
            lane.turn = None
            self.lanes.changed()

    def _land(self, number: int) -> tuple[Lane, Flight]:
        lane = self.flights.pop(number)
        before = lane.reserved
        flight = lane.flights.pop(number)
        self.ledger.reserved -= before - lane.reserved
        self.ledger.weights.unpin(lane.key.digest)
        for job, part in flight.taken:
            job.running -= part.count
        return lane, flight

    def done(
        self, number: int, seconds: float, peak_bytes: int | None, ran: int, whole: bool
    ) -> list[Job]:
        """A micro-batch is through, ``ran`` samples of it through the network, ``whole`` or not.

        :returns: its jobs, each once, in order; those all of whose samples are done are COMPUTED
        :raises KeyError: no such micro-batch is under way
        """
        lane, flight = self._land(number)
        known = lane.activation_bytes, lane.limit
        if ran:
            lane.measured(ran, seconds, peak_bytes, whole)
        lane.succeeded(flight.size, self.config.grow_after)
        if (lane.activation_bytes, lane.limit) != known:
            self.lanes.changed()
        self._correct(flight, seconds)
        for job, part in flight.taken:
            job.done += part.count
            self.lanes.subtract(lane, job.account, part.count)
            if job.stage is Stage.QUEUED and job.done == job.samples:
                self.lanes.ended(job, Stage.COMPUTED)
        return list({id(job): job for job, _ in flight.taken}.values())

    def _correct(self, flight: Flight, seconds: float) -> None:
        believed = sum(flight.charges.values())
        rest = seconds / believed - 1 if believed else 0.0
        self.lanes.clock.charge({account: part * rest for account, part in flight.charges.items()})

    def failed(self, number: int) -> tuple[list[Job], list[Job]]:
        """A micro-batch could not get its memory: its samples wait again, in smaller ones.

        :returns: its jobs, each once, and those of them that were given up (now DROPPED)
        :raises KeyError: no such micro-batch is under way
        """
        lane, flight = self._land(number)
        lane.failed(flight.size, self.config.failure_growth)
        self._correct(flight, 0.0)
        self.lanes.changed()
        again, lost = [], []
        for job, part in flight.taken:
            if job.stage is not Stage.QUEUED:
                self.lanes.subtract(lane, job.account, part.count)
                continue
            again.append((job, part))
            if flight.size == 1:
                job.single_failures += 1
                if job.single_failures >= self.config.single_tries:
                    lost.append(job)
        lane.queue.put_back(again)
        for job in lost:
            self.lanes.remove(job, Stage.DROPPED)
        return list({id(job): job for job, _ in flight.taken}.values()), lost

    def hopeless(self, leaving: int) -> list[Job]:
        """Jobs that must go, newest first, before any lane can run again.

        There are none unless a lane turned out to need more than was believed when its requests
        were taken. ``leaving`` bytes are held by requests that are about to depart.
        """
        if self.flights or not self.lanes.busy or self.lanes.plan().targets:
            return []
        least = min(
            lane.spec.weight_bytes
            + lane.spec.workspace_bytes
            + min(lane.least, lane.total) * lane.sample_cost
            for lane in self.lanes.busy.values()
        )
        short = least - (self.ledger.budget - self.ledger.held) - leaving
        victims = []
        for job in reversed(self.lanes.jobs.values()):
            if short <= 0:
                break
            victims.append(job)
            short -= job.input_held + job.output_bytes
        return victims
