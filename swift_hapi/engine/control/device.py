"""One device: the way of a request through its two gates, its lanes, and out again."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from swift_hapi.engine.control.fairness import AccountClock
from swift_hapi.engine.control.laneset import LaneSet
from swift_hapi.engine.control.ledger import Ledger
from swift_hapi.engine.control.outlook import Outlook
from swift_hapi.engine.control.queueing import Job, Stage
from swift_hapi.engine.control.scheduler import Scheduler
from swift_hapi.engine.control.types import (
    Answer,
    Batch,
    ControlConfig,
    DeviceSpec,
    Event,
    LaneSpec,
    Pause,
    Verdict,
    What,
)


class Device:
    """:param emit: takes the events that concern others than the caller"""

    def __init__(
        self, index: int, spec: DeviceSpec, config: ControlConfig, clock: AccountClock,
        ids: Iterator[int], emit: Callable[[Event], None],
    ):
        self.index = index
        self.spec = spec
        self.config = config
        self.ledger = Ledger(
            spec.budget_bytes, config, lambda digest: emit(Event(What.EVICT, digest, index))
        )
        self.lanes = LaneSet(config, self.ledger, clock, spec.max_lanes)
        self.scheduler = Scheduler(index, config, self.ledger, self.lanes, ids)
        self._emit = emit
        self.outlook = Outlook(config, self.ledger, self.lanes)
        self._leaving = 0

    # -- in -----------------------------------------------------------------------------------

    def too_large(self, input_bytes: int) -> str:
        """Why the door will never grant that much; empty if it might."""
        cap = self.ledger.door.cap
        if input_bytes <= cap:
            return ""
        return f"the object needs {input_bytes} bytes, the node has {cap} for objects in all"

    def never_runs(self, spec: LaneSpec, output_bytes: int) -> str:
        """Why a request could never be seated and run; empty if it could."""
        need = self.lanes.lane(spec).need
        total = self.ledger.door.cap + output_bytes + need
        if total <= self.spec.budget_bytes:
            return ""
        return (
            f"{need} bytes for the extractor with its least micro-batch, {output_bytes} for the "
            f"response and {self.ledger.door.cap} for objects exceed the node's "
            f"{self.spec.budget_bytes}: ask for fewer samples or another cut"
        )

    def offer(self, job: Job) -> Verdict:
        """Ask for a place and the input bytes. See :meth:`Controller.offer`."""
        nbytes = job.ticket.input_bytes
        reason = self.too_large(nbytes)
        if reason:
            return Verdict(Answer.NEVER, self.index, reason=reason)
        door = self.ledger.door
        welcome = door.room_for(job.account, self.config.room)
        door.join(job, nbytes)
        self.outlook.expect(job, job.ticket.seconds)
        self._admit(besides=job)
        if job.stage is Stage.ADMITTED:
            return Verdict(Answer.ADMITTED, self.index)
        retry = self.outlook.retry_after(nbytes)
        if welcome:
            self.lanes.memory_changed()
            return Verdict(Answer.WAITING, self.index, retry)
        door.quit(job)
        self.outlook.expect(job, 0.0)
        reason = (
            f"{door.holders} requests hold {door.total} of {door.cap} bytes for objects, "
            f"{door.waiting} wait"
        )
        return Verdict(Answer.LATER, self.index, retry, reason)

    def enqueue(
        self, job: Job, spec: LaneSpec, samples: int, output_bytes: int, now: float
    ) -> Verdict:
        """Ask for the output bytes and queue. See :meth:`Controller.enqueue`."""
        reason = self.never_runs(spec, output_bytes)
        if reason:
            return Verdict(Answer.NEVER, self.index, reason=reason)
        job.spec, job.samples, job.output_bytes = spec, samples, output_bytes
        job.stage = Stage.SEATING
        self.outlook.arrived(job)
        self.outlook.expect(job, samples * self.lanes.lane(spec).sample_seconds)
        self.ledger.seats.join(job, output_bytes)
        self._seat(now, besides=job)
        if job.stage is Stage.QUEUED:
            return Verdict(Answer.ADMITTED, self.index)
        self.lanes.memory_changed()
        return Verdict(Answer.WAITING, self.index, self.outlook.retry_after(output_bytes))

    def _admit(self, besides: Job | None = None) -> None:
        door = self.ledger.door
        while (claim := door.head(self.lanes.clock.__getitem__)) is not None:
            job, nbytes = claim
            if not (door.has(nbytes) and self._clear(nbytes, 0)):
                return
            door.quit(job, served=True)
            door.hold(job.account, nbytes)
            job.stage, job.placed, job.input_held = Stage.ADMITTED, True, nbytes
            self.outlook.announce(job)
            self.lanes.memory_changed()
            if job is not besides:
                self._emit(Event(What.ADMITTED, job.ticket.id, self.index))

    def _seat(self, now: float, besides: Job | None = None) -> None:
        seats = self.ledger.seats
        while (claim := seats.head(self.lanes.clock.__getitem__)) is not None:
            job, nbytes = claim
            reason = self.never_runs(job.spec, nbytes)
            if reason:  # the memory model was found too small while it waited
                self.drop(job, What.SHED, reason)
                continue
            need = self.lanes.lane(job.spec).need
            if not (seats.has(nbytes) and self._clear(nbytes, need)):
                return
            seats.quit(job, served=True)
            seats.hold(job.account, nbytes)
            job.seated = True
            self.outlook.expect(job, 0.0)
            self.lanes.add(job, now)
            if job is not besides:
                self._emit(Event(What.SEATED, job.ticket.id, self.index))

    def _clear(self, nbytes: int, need: int) -> bool:
        """Whether ``nbytes`` can be held while every lane could still run, and are free now."""
        need = max(need, self.lanes.need)
        if self.ledger.held + nbytes + need > self.spec.budget_bytes:
            return False
        return self.ledger.clear(nbytes, self.lanes.working_digests())

    def pump(self, now: float) -> None:
        """Let in who waits, as far as there is room: first those that will finish, then new."""
        self._seat(now)
        self._admit()

    # -- out ----------------------------------------------------------------------------------

    def release_input(self, job: Job, now: float) -> None:
        """The object's bytes are not needed any more."""
        if job.placed and job.input_held:
            self.ledger.door.release(job.account, job.input_held)
            if job.stage is Stage.DROPPED:
                self._leaving -= job.input_held
            job.input_held = 0
            self.lanes.memory_changed()
            self.pump(now)

    def _withdraw(self, job: Job, stage: Stage) -> None:
        """Out of whatever queue it is in, into ``stage``; what it holds stays held."""
        if job.stage is Stage.OFFERED:
            self.ledger.door.quit(job)
        elif job.stage is Stage.ADMITTED:
            self.outlook.arrived(job)
        elif job.stage is Stage.SEATING:
            self.ledger.seats.quit(job)
        elif job.stage is Stage.QUEUED:
            self.lanes.remove(job, stage)
        self.outlook.expect(job, 0.0)
        job.stage = stage

    def drop(self, job: Job, what: What, reason: str) -> None:
        """Run nothing more of a request; it holds its bytes until it departs."""
        self._withdraw(job, Stage.DROPPED)
        self._leaving += self._bytes(job)
        self._emit(Event(what, job.ticket.id, self.index, reason))

    def depart(self, job: Job, now: float) -> None:
        """The request is over, done or not. Bytes that a micro-batch uses go when it ends."""
        if job.stage is Stage.DROPPED:
            self._leaving -= self._bytes(job)
        self._withdraw(job, Stage.GONE)
        if not job.running:
            self._free(job)
        self.lanes.memory_changed()
        self.pump(now)

    @staticmethod
    def _bytes(job: Job) -> int:
        return job.input_held + (job.output_bytes if job.seated else 0)

    def _free(self, job: Job) -> None:
        if job.placed:
            self.ledger.door.release(job.account, job.input_held)
            self.ledger.door.leave(job.account)
        if job.seated:
            self.ledger.seats.release(job.account, job.output_bytes)
            self.ledger.seats.leave(job.account)
        job.placed = job.seated = False
        job.input_held = 0

    # -- work ---------------------------------------------------------------------------------

    def next_batch(self, now: float, without: Container[str] = frozenset()) -> Batch | Pause:
        for job in self.scheduler.hopeless(self._leaving):
            self.drop(job, What.SHED, "the extractor needs more memory than it was believed to")
        if not self.scheduler.flights:
            self.outlook.resume(now)
        return self.scheduler.next_batch(now, self.outlook.coming, without)

    def done(
        self, number: int, seconds: float, now: float, peak: int | None, ran: int, whole: bool
    ) -> list[str]:
        """Ids of requests all of whose samples are done now."""
        jobs = self.scheduler.done(number, seconds, peak, ran, whole)
        self.outlook.measured(seconds, now)
        self._landed(jobs, now)
        return [job.ticket.id for job in jobs if job.stage is Stage.COMPUTED]

    def failed(self, number: int, now: float) -> list[str]:
        """Ids of requests that are given up."""
        jobs, lost = self.scheduler.failed(number)
        self._leaving += sum(self._bytes(job) for job in lost)
        self._landed(jobs, now)
        return [job.ticket.id for job in lost]

    def _landed(self, jobs: list[Job], now: float) -> None:
        self.outlook.resume(now)
        for job in jobs:
            if job.stage is Stage.GONE and not job.running:
                self._free(job)
        self.lanes.memory_changed()
        self.pump(now)

    # -- weights ------------------------------------------------------------------------------

    def hold_weights(self, digest: str, nbytes: int) -> bool:
        """See :meth:`Controller.hold_weights`."""
        weights = self.ledger.weights
        if digest in weights or not self._clear(nbytes, self.lanes.need):
            return False
        weights.add(digest, nbytes)
        weights.pin(digest)
        self.lanes.memory_changed()
        return True

    def settle_weights(self, digest: str, nbytes: int, now: float) -> bool:
        """See :meth:`Controller.settle_weights`."""
        weights = self.ledger.weights
        weights.unpin(digest)
        if weights.pinned(digest):  # a lane has started with them
            return True
        weights.drop(digest)
        stays = bool(nbytes) and self._clear(nbytes, self.lanes.need)
        if stays:
            weights.add(digest, nbytes)
        self.lanes.memory_changed()
        self.pump(now)
        return stays
