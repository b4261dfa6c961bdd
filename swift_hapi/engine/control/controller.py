"""The controller: what the engine (or a simulator) talks to.

A request's life, as calls::

    offer ──► (ADMITTED event) ──► enqueue ──► (SEATED event) ──► parts of batches ──► depart
      place and input bytes          output bytes, samples          batch_done names it

``depart`` ends it at any point (client gone, error, response sent) and may be repeated. After
every call, :meth:`Controller.take_events` has the news for others; ask :meth:`next_batch` of each
device until it answers with a pause.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Container, Sequence

from swift_hapi.engine.control.device import Device
from swift_hapi.engine.control.fairness import AccountClock
from swift_hapi.engine.control.placement import choose
from swift_hapi.engine.control.plan import Plan
from swift_hapi.engine.control.queueing import Job, Stage
from swift_hapi.engine.control.types import (
    Answer,
    Batch,
    ControlConfig,
    DeviceSpec,
    Event,
    LaneKey,
    LaneSpec,
    Pause,
    Ticket,
    Verdict,
    What,
)

_OVER = (Stage.COMPUTED, Stage.DROPPED, Stage.GONE)


class Controller:
    """:param devices: at least one; placement chooses among them"""

    def __init__(self, devices: Sequence[DeviceSpec], config: ControlConfig | None = None):
        if not devices:
            raise ValueError("a controller needs a device")
        self.config = config or ControlConfig()
        self._events: list[Event] = []
        ids, clock = itertools.count(1), AccountClock()
        self.devices = [
            Device(index, spec, self.config, clock, ids, self._events.append)
            for index, spec in enumerate(devices)
        ]
        self._jobs: dict[str, tuple[Job, Device]] = {}
        self._deadlines: list[tuple[float, str]] = []

    # -- requests -----------------------------------------------------------------------------

    def offer(self, ticket: Ticket, weight_bytes: int = 0) -> Verdict:
        """Ask for a place and memory for ``ticket.input_bytes``, before the bytes are read.

        ADMITTED: go on. WAITING: an ADMITTED event will follow; who stops waiting departs, and
        ``retry_after`` says what to tell the client. LATER, NEVER: nothing is kept.

        :param weight_bytes: of the extractor, if known; weighs devices without it
        :raises ValueError: a request of that id is under way
        """
        return self._offer(ticket, self.devices, weight_bytes)

    def _offer(self, ticket: Ticket, among: Sequence[Device], weight_bytes: int) -> Verdict:
        if ticket.id in self._jobs:
            raise ValueError(f"request {ticket.id} is under way already")
        if ticket.input_bytes < 0:
            raise ValueError("input_bytes must not be negative")
        able = [device for device in among if not device.too_large(ticket.input_bytes)]
        place = choose(
            device.outlook.bid(device.index, ticket, weight_bytes) for device in able or among
        )
        device = self.devices[place]
        job = Job(ticket)
        verdict = device.offer(job)
        if verdict.answer in (Answer.ADMITTED, Answer.WAITING):
            self._jobs[ticket.id] = job, device
            if ticket.deadline < math.inf:
                heapq.heappush(self._deadlines, (ticket.deadline, ticket.id))
        return verdict

    def enqueue(
        self, request: str, spec: LaneSpec, samples: int, output_bytes: int, now: float
    ) -> Verdict:
        """Queue an admitted request's samples, now that they are known.

        ADMITTED: its samples will be in micro-batches. WAITING: so they will, once a SEATED event
        has said that its output has memory. NEVER: it cannot run here; depart.

        :raises KeyError: no such request
        :raises ValueError: it is not at that stage, or has no samples
        """
        job, device = self._jobs[request]
        if job.stage is not Stage.ADMITTED:
            raise ValueError(f"request {request} is {job.stage.name.lower()}, not admitted")
        if samples < 1 or output_bytes < 0:
            raise ValueError("samples must be at least 1, output_bytes not negative")
        return device.enqueue(job, spec, samples, output_bytes, now)

    def submit(
        self, ticket: Ticket, spec: LaneSpec, samples: int, output_bytes: int, now: float
    ) -> Verdict:
        """Offer and, as soon as admitted, enqueue, for who knows everything beforehand.

        Only devices that can run it are considered; NEVER when there is none. When the answer is
        WAITING for admission the caller enqueues after the event, as always.
        """
        reasons = [device.never_runs(spec, output_bytes) for device in self.devices]
        able = [d for d, reason in zip(self.devices, reasons, strict=True) if not reason]
        if not able:
            return Verdict(Answer.NEVER, reason=reasons[0])
        verdict = self._offer(ticket, able, spec.weight_bytes)
        if verdict.answer is Answer.ADMITTED:
            return self.enqueue(ticket.id, spec, samples, output_bytes, now)
        return verdict

    def admitted(self, request: str) -> bool:
        """Whether a request holds its input bytes and waits to be enqueued."""
        entry = self._jobs.get(request)
        return entry is not None and entry[0].stage is Stage.ADMITTED

    def release_input(self, request: str, now: float) -> None:
        """The object's bytes have been decoded or dropped; only the place is kept."""
        entry = self._jobs.get(request)
        if entry is not None:
            entry[1].release_input(entry[0], now)

    def depart(self, request: str, now: float) -> None:
        """The request is over; everything it holds comes free. Unknown ids are ignored."""
        entry = self._jobs.pop(request, None)
        if entry is not None:
            entry[1].depart(entry[0], now)

    def expire(self, now: float) -> None:
        """Drop what is past its deadline; an EXPIRED event names each."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, request = heapq.heappop(self._deadlines)
            job, device = self._jobs.get(request, (None, None))
            if job is not None and job.ticket.deadline <= now and job.stage not in _OVER:
                device.drop(job, What.EXPIRED, "its deadline has passed")
                device.lanes.memory_changed()
                device.pump(now)

    # -- micro-batches ------------------------------------------------------------------------

    def next_batch(
        self, device: int, now: float, without: Container[str] = frozenset()
    ) -> Batch | Pause:
        """The next micro-batch to start on a device; its memory is reserved from now on.

        EVICT events that came with it are to be obeyed first. Micro-batches of one lane go
        through the network one after the other.

        :param without: accounts whose turn it is not: a lane for them alone does not start
        """
        return self.devices[device].next_batch(now, without)

    def batch_done(
        self,
        batch: Batch,
        seconds: float,
        now: float,
        peak_bytes: int | None = None,
        *,
        ran: int | None = None,
        whole: bool = True,
    ) -> list[str]:
        """A micro-batch is through after ``seconds``.

        :param peak_bytes: its measured peak without weights, if known: calibrates the lane
        :param ran: samples of it that went through the network, None if all did
        :param whole: False: they did not go all the way, nobody waited for them any more
        :returns: ids of requests that are complete now
        """
        ran = batch.size if ran is None else ran
        return self.devices[batch.device].done(batch.id, seconds, now, peak_bytes, ran, whole)

    def batch_failed(self, batch: Batch, now: float) -> list[str]:
        """A micro-batch could not allocate: it is undone, the lane's next ones are smaller.

        :returns: ids of requests given up, because even one sample alone failed repeatedly
        """
        return self.devices[batch.device].failed(batch.id, now)

    def calibrate(self, device: int, lane: LaneKey, activation_bytes: int) -> None:
        """Replace a lane's bytes per sample by measured ones."""
        self.devices[device].lanes.calibrate(lane, activation_bytes)

    def hold_weights(self, device: int, digest: str, nbytes: int) -> bool:
        """Book weights that the executor is about to load before any lane needs them.

        They are not evicted until :meth:`settle_weights`. False, and nothing is booked, when they
        are booked already or there is no room even without idle weights.
        """
        return self.devices[device].hold_weights(digest, nbytes)

    def settle_weights(self, device: int, digest: str, nbytes: int, now: float) -> bool:
        """The loading of held weights is over: they are there with ``nbytes``, or with 0 are not.

        :returns: whether they may stay
        """
        return self.devices[device].settle_weights(digest, nbytes, now)

    def never_runs(self, device: int, spec: LaneSpec, output_bytes: int) -> str:
        """Why a request of that lane could never run on a device; empty if it could."""
        return self.devices[device].never_runs(spec, output_bytes)

    def weights_gone(self, device: int, digest: str) -> None:
        """The executor no longer has (or failed to load) weights that no micro-batch uses."""
        weights = self.devices[device].ledger.weights
        if not weights.pinned(digest):
            weights.drop(digest)

    # -- news ---------------------------------------------------------------------------------

    def take_events(self) -> list[Event]:
        """What happened since the last call, in order."""
        events = self._events[:]
        self._events.clear()
        return events

    def plan(self, device: int) -> Plan:
        """How a device's memory is divided at the moment."""
        return self.devices[device].lanes.plan()

    def retry_after(self, device: int, input_bytes: int) -> float:
        """Seconds after which a request of that size should find room."""
        return self.devices[device].outlook.retry_after(input_bytes)

    def snapshot(self) -> list[dict]:
        """One JSON-ready dict per device, for status pages and metrics."""
        return [_describe(device) for device in self.devices]


def _describe(device: Device) -> dict:
    ledger, lanes = device.ledger, device.lanes
    plan = lanes.plan()
    return {
        "device": device.spec.name,
        "budget_bytes": ledger.budget,
        "used_bytes": ledger.used,
        "input_bytes": ledger.door.total,
        "input_bytes_capacity": ledger.door.cap,
        "output_bytes": ledger.seats.total,
        "weight_bytes": ledger.weights.total,
        "reserved_bytes": ledger.reserved,
        "admitted": ledger.door.holders,
        "waiting_to_be_admitted": ledger.door.waiting,
        "waiting_for_output": ledger.seats.waiting,
        "expected_seconds": device.outlook.expected_seconds(),
        "waiting_lanes": len(plan.waiting),
        "lanes": [
            {
                "digest": key.digest,
                "cut": key.cut,
                "shape": list(key.shape),
                "target": plan.targets.get(key, 0),
                "waiting": lane.queue.waiting,
                "running": lane.total - lane.queue.waiting,
                "accounts": len(lane.unfinished),
                "account": key.account,
                "bound": key.bound,
                "limit": lane.limit,
                "activation_bytes": lane.activation_bytes,
                "sample_seconds": lane.sample_seconds,
            }
            for key, lane in lanes.busy.items()
        ],
    }
