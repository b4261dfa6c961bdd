"""The controller at work: its decisions carried out on this machine's threads and device.

Event loop only. Every request passes :meth:`Driver.admit` (a place and memory for its object,
before a byte of it is read), :meth:`Driver.run` (its samples go through micro-batches shared with
other requests) and, whatever happens, :meth:`Driver.depart`. Two micro-batches are under way at a
time (:mod:`~swift_hapi.engine.flights`): while one is in the network the next is decoded. The next
one is chosen only when one has ended, so that whoever comes last waits for two micro-batches at
most before it is its turn.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable

from swift_hapi.engine.compute import Cost, Manners, Slot
from swift_hapi.engine.control import (
    Answer,
    Batch,
    Controller,
    Event,
    LaneKey,
    LaneSpec,
    Ticket,
    Verdict,
    What,
)
from swift_hapi.engine.device import Device
from swift_hapi.engine.flights import Flights, Place
from swift_hapi.engine.job import Extracted, Job
from swift_hapi.engine.lane import Lane
from swift_hapi.engine.weights import Weights
from swift_hapi.engine.workers import Workers
from swift_hapi.protocol.errors import EngineBusy, HapiError, TooLarge

LOG = logging.getLogger(__name__)
WINDOW = 2
_DEVICE = 0  # one process drives one device


def seconds_to_retry(estimate: float) -> int:
    return max(1, math.ceil(estimate))


class Driver:
    """
    :param observe: told (lane, size, cost) of each micro-batch that is through
    :param patience: seconds after which a micro-batch in the network makes way for those of other
        accounts; its own accounts start nothing more until it is through
    """

    def __init__(
        self,
        controller: Controller,
        workers: Workers,
        device: Device,
        weights: Weights,
        observe: Callable[[LaneKey, int, Cost], None] = lambda key, size, cost: None,
        patience: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.controller = controller
        self.failures = 0
        self._workers = workers
        self._device = device
        self._weights = weights
        self._observe = observe
        self._clock = clock
        self._flights = Flights(workers, device, weights)
        self._doors: dict[str, asyncio.Future[None]] = {}
        self._jobs: dict[str, tuple[Job, Lane]] = {}
        self._patience = patience
        self._under_way: dict[int, tuple[asyncio.Task, frozenset[str]]] = {}
        self._overrunning: set[int] = set()
        self._alarm: asyncio.TimerHandle | None = None

    # -- requests -----------------------------------------------------------------------------

    async def admit(self, ticket: Ticket, patience: float, weight_bytes: int = 0) -> None:
        """A place and memory for the object, within ``patience`` seconds; :meth:`depart` gives
        them back, and is due whatever happens.

        :raises EngineBusy: not in time, or too many wait already
        :raises TooLarge: the object can never be taken
        """
        verdict = self.controller.offer(ticket, weight_bytes)
        if verdict.answer is Answer.ADMITTED:
            self._pump()
            return
        if verdict.answer is not Answer.WAITING:
            raise _refusal(verdict)
        door = self._doors[ticket.id] = asyncio.get_running_loop().create_future()
        self._pump()
        try:
            done, _ = await asyncio.wait({door}, timeout=max(0.0, patience))
        finally:
            del self._doors[ticket.id]
        if not done:
            self.depart(ticket.id)
            raise EngineBusy(
                "no place and memory within the admission time",
                retry_after=self.retry_after(ticket.input_bytes),
            )

    async def run(self, job: Job, lane: Lane, output_bytes: int) -> Extracted:
        """Features of an admitted request's samples.

        :raises TooLarge: it can never run here
        :raises EngineBusy: memory was not enough after all
        :raises HapiError: a sample of it cannot be used
        """
        self._jobs[job.id] = job, lane
        job.queued_at = self._clock()
        verdict = self.controller.enqueue(
            job.id, lane.spec, len(job.work.samples), output_bytes, job.queued_at
        )
        if verdict.answer is Answer.NEVER:
            raise TooLarge(verdict.reason)
        self._pump()
        return await job.result()

    def release_input(self, request: str) -> None:
        """The object's bytes are gone; the place is kept."""
        self.controller.release_input(request, self._clock())
        self._pump()

    def depart(self, request: str) -> None:
        """The request is over; may be called more than once."""
        job, _ = self._jobs.pop(request, (None, None))
        if job is not None:
            job.leave()
        self.controller.depart(request, self._clock())
        self._pump()

    def retry_after(self, nbytes: int = 0) -> int:
        """Whole seconds after which a request of that size should find room."""
        return seconds_to_retry(self.controller.retry_after(_DEVICE, nbytes))

    def calibrate(self, key: LaneKey, activation_bytes: int) -> None:
        """A lane's bytes per sample are known better now."""
        self.controller.calibrate(_DEVICE, key, activation_bytes)
        self._pump()

    def never_runs(self, spec: LaneSpec, output_bytes: int = 0) -> str:
        """Why a request of that lane could never run; empty if it could."""
        return self.controller.never_runs(_DEVICE, spec, output_bytes)

    # -- weights that no micro-batch waits for --------------------------------------------------

    def hold_weights(self, digest: str, nbytes: int) -> bool:
        """Room for weights that are about to be loaded; :meth:`settle_weights` must follow."""
        held = self.controller.hold_weights(_DEVICE, digest, nbytes)
        self._pump()
        return held

    def settle_weights(self, digest: str, nbytes: int) -> None:
        """They are loaded and take ``nbytes``, or, with 0, are not."""
        if not self.controller.settle_weights(_DEVICE, digest, nbytes, self._clock()):
            self._weights.drop(digest)
        self._pump()

    # -- micro-batches ------------------------------------------------------------------------

    def _pump(self) -> None:
        """Tell the news, start what may start."""
        until = None
        self._news()
        slow = self._slow_accounts()
        while self._lined_up(slow) < WINDOW:
            answer = self.controller.next_batch(_DEVICE, self._clock(), slow)
            self._news()
            if not isinstance(answer, Batch):
                until = answer.until
                break
            self._start(answer)
        self._set_alarm(until)

    def _slow_accounts(self) -> frozenset[str]:
        """Accounts whose micro-batches are making way for those of others."""
        return frozenset().union(*(self._under_way[number][1] for number in self._overrunning))

    def _lined_up(self, slow: frozenset[str]) -> int:
        """Micro-batches under way, without those of ``slow`` accounts alone."""
        return sum(not accounts <= slow for _, accounts in self._under_way.values())

    def _overrun(self, number: int) -> None:
        if number in self._under_way:
            self._overrunning.add(number)
            self._pump()

    def _set_alarm(self, until: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if until is not None:
            delay = max(0.0, until - self._clock())
            self._alarm = asyncio.get_running_loop().call_later(delay, self._pump)

    def _news(self) -> None:
        for event in self.controller.take_events():
            self._hear(event)

    def _hear(self, event: Event) -> None:
        if event.what is What.EVICT:
            self._weights.drop(event.subject)
        elif event.what is What.ADMITTED:
            door = self._doors.get(event.subject)
            if door is not None and not door.done():
                door.set_result(None)
        elif event.what is What.SHED:
            self._give_up([event.subject], event.reason)

    def _give_up(self, requests: list[str], reason: str) -> None:
        for request in requests:
            job, _ = self._jobs.get(request, (None, None))
            if job is not None:
                job.fail(EngineBusy(reason, retry_after=self.retry_after()))

    def _start(self, batch: Batch) -> None:
        now = self._clock()
        slots: list[Slot] = []
        lane = None
        for part in batch.parts:
            job, lane = self._jobs[part.request]
            if job.queued_at is not None:
                job.spent.queue += now - job.queued_at
                job.queued_at = None
            slots += [Slot(job, at) for at in range(part.start, part.start + part.count)]
        place = self._flights.line_up(batch.lane)
        flight = asyncio.create_task(self._fly(batch, slots, lane, place))
        self._under_way[batch.id] = flight, frozenset(slot.job.account for slot in slots)
        flight.add_done_callback(lambda flight: self._landed(batch.id, flight))

    def _landed(self, number: int, flight: asyncio.Task) -> None:
        del self._under_way[number]
        self._overrunning.discard(number)
        if not flight.cancelled() and flight.exception() is not None:
            LOG.critical("the driver has failed", exc_info=flight.exception())
        self._pump()

    async def _fly(self, batch: Batch, slots: list[Slot], lane: Lane, place: Place) -> None:
        loop = asyncio.get_running_loop()
        manners = Manners(
            self._patience if self._device.kind == "cpu" else math.inf,
            lambda: loop.call_soon_threadsafe(self._overrun, batch.id),
        )
        end = await self._flights.fly(slots, lane, place, manners)
        if end.shortage is None:
            self._done(batch, lane, end.cost)
        else:
            self._failed(batch, lane, end.shortage)

    def _done(self, batch: Batch, lane: Lane, cost: Cost) -> None:
        peak = None
        if cost.infer:
            self._observe(batch.lane, batch.size, cost)
            peak = self._device.peak(lane.spec.weight_bytes)
        seconds = cost.infer + cost.decode / self._workers.decoders
        through = self.controller.batch_done(
            batch, seconds, self._clock(), peak, ran=cost.ran, whole=cost.whole
        )
        for request in through:
            job, _ = self._jobs.get(request, (None, None))
            if job is not None:
                job.finish()
        self._look_for_weights(lane)

    def _look_for_weights(self, lane: Lane) -> None:
        """They may have failed to load."""
        digest = lane.key.digest
        if lane.cut is not None and digest not in self._weights:
            self.controller.weights_gone(_DEVICE, digest)

    def _failed(self, batch: Batch, lane: Lane, reason: str) -> None:
        self.failures += 1
        LOG.warning("a micro-batch of %d could not get its memory: %s", batch.size, reason[:200])
        lost = self.controller.batch_failed(batch, self._clock())
        self._give_up(lost, "not even one sample gets the memory it needs")
        self._look_for_weights(lane)


def _refusal(verdict: Verdict) -> HapiError:
    if verdict.answer is Answer.NEVER:
        return TooLarge(verdict.reason)
    return EngineBusy(verdict.reason, retry_after=seconds_to_retry(verdict.retry_after))
