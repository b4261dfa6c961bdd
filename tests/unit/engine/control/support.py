"""A small world to drive a controller in: specs with round numbers, and a clock."""

from __future__ import annotations

from swift_hapi.engine.control import (
    Answer,
    Batch,
    ControlConfig,
    Controller,
    DeviceSpec,
    LaneKey,
    LaneSpec,
    Ticket,
)


def spec(digest="m", cut="x", **values) -> LaneSpec:
    base = {
        "weight_bytes": 100,
        "workspace_bytes": 0,
        "activation_bytes": 10,
        "b_max": 8,
        "sample_seconds": 1.0,
    }
    return LaneSpec(LaneKey(digest, cut, (3,)), **{**base, **values})


class World:
    """One controller, one clock, and the micro-batches under way."""

    def __init__(self, budget=10_000, devices=1, max_lanes=None, **config):
        specs = [DeviceSpec(f"d{i}", budget, max_lanes) for i in range(devices)]
        self.controller = Controller(specs, ControlConfig(**{"depth": 1, **config}))
        self.now = 0.0
        self.flights: list[Batch] = []
        self.ended: dict[str, float] = {}
        self.started: dict[str, float] = {}
        self.batches: list[Batch] = []

    def submit(self, name, lane, samples, *, account=None, size=0, output=0, deadline=None):
        ticket = Ticket(
            name, account or name, size, self.now + (deadline or 1e9), digest=lane.key.digest
        )
        return self.controller.submit(ticket, lane, samples, output, self.now)

    def must(self, *args, **kwargs):
        assert self.submit(*args, **kwargs).answer is Answer.ADMITTED

    def start(self, device=0):
        """Start all that may start now; the new micro-batches."""
        new = []
        while isinstance(batch := self.controller.next_batch(device, self.now), Batch):
            new.append(batch)
            for part in batch.parts:
                self.started.setdefault(part.request, self.now)
        self.flights += new
        self.batches += new
        return new

    def finish(self, batch=None, seconds=None):
        """The oldest (or given) micro-batch ends, after a second per sample."""
        batch = batch or self.flights[0]
        self.flights.remove(batch)
        seconds = batch.size if seconds is None else seconds
        self.now += seconds
        complete = self.controller.batch_done(batch, seconds, self.now)
        for name in complete:
            self.ended[name] = self.now
            self.controller.depart(name, self.now)
        return complete

    def fail(self, batch=None):
        batch = batch or self.flights[0]
        self.flights.remove(batch)
        return self.controller.batch_failed(batch, self.now)

    def run(self, most=10_000):
        """Until nothing is left to do, or ``most`` micro-batches have ended."""
        for _ in range(most):
            for device in range(len(self.controller.devices)):
                self.start(device)
            if not self.flights:
                pause = self.controller.next_batch(0, self.now)
                if pause.until is None:
                    return
                self.now = pause.until
                continue
            self.finish()

    def events(self):
        return [(event.what.value, event.subject) for event in self.controller.take_events()]

    @property
    def used(self):
        return self.controller.snapshot()[0]["used_bytes"]
