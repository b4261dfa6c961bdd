"""The engine's own controller: the same object, with made-up work."""

from __future__ import annotations

import time

from benchmarks.policies.base import Run
from benchmarks.policies.trace import (
    DECODED,
    LEAST_BATCH,
    LOAD_RATE,
    OVERHEAD,
    WORKSPACE,
    Request,
)
from swift_hapi.engine.control import (
    Answer,
    Batch,
    ControlConfig,
    Controller,
    DeviceSpec,
    LaneKey,
    LaneSpec,
    Ticket,
    What,
)

MAX_LANES = 4  # more at once share the device's time by lane instead of by account
CONFIG = ControlConfig(depth=1, places=512, room=1024, load_rate=LOAD_RATE)


class Ours:
    """Adds up the real time spent in the controller in ``thinking``, over ``decisions`` calls."""

    name = "ours"

    def __init__(self, devices: int, budget: int, config: ControlConfig = CONFIG):
        specs = [DeviceSpec(f"d{i}", budget, MAX_LANES) for i in range(devices)]
        self.controller = Controller(specs, config)
        self.failed: set[str] = set()
        self.thinking = 0.0
        self.decisions = 0
        self._requests: dict[str, Request] = {}
        self._lanes: dict[LaneKey, LaneSpec] = {}

    def _lane(self, request: Request) -> LaneSpec:
        model = request.model
        key = LaneKey(request.digest, model.cut, (3, 224, 224), request.batch)
        if key not in self._lanes:
            self._lanes[key] = LaneSpec(
                key,
                model.weights,
                WORKSPACE,
                model.activation,
                DECODED,
                min(LEAST_BATCH, request.batch),
                request.batch,
                model.sample_seconds,
            )
        return self._lanes[key]

    def _timed(self, function, *args):
        began = time.perf_counter()
        result = function(*args)
        self.thinking += time.perf_counter() - began
        self.decisions += 1
        return result

    def arrive(self, request: Request, now: float) -> float | None:
        ticket = Ticket(
            request.id,
            request.tenant,
            request.input_bytes,
            digest=request.digest,
            seconds=request.seconds,
        )
        self._requests[request.id] = request
        verdict = self._timed(
            self.controller.submit,
            ticket,
            self._lane(request),
            request.samples,
            request.output_bytes,
            now,
        )
        if verdict.answer is Answer.NEVER:
            self.failed.add(request.id)
        return now + verdict.retry_after if verdict.answer is Answer.LATER else None

    def start(self, device: int, now: float) -> tuple[list[Run], float | None]:
        runs = []
        while True:
            self._news(now)
            answer = self._timed(self.controller.next_batch, device, now)
            if not isinstance(answer, Batch):
                return runs, answer.until
            parts: dict[str, int] = {}
            for part in answer.parts:
                parts[part.request] = parts.get(part.request, 0) + part.count
            model = self._requests[answer.parts[0].request].model
            work = OVERHEAD + answer.size * model.sample_seconds
            load = model.weights / LOAD_RATE if answer.load else 0.0
            runs.append(Run(device, work, load, parts, answer, now))

    def done(self, run: Run, now: float) -> list[str]:
        complete = self._timed(self.controller.batch_done, run.token, now - run.started, now)
        for request in complete:
            self._timed(self.controller.depart, request, now)
        self._news(now)
        return complete

    def _news(self, now: float) -> None:
        for event in self.controller.take_events():
            if event.what is What.ADMITTED:
                request = self._requests[event.subject]
                self.controller.enqueue(
                    request.id, self._lane(request), request.samples, request.output_bytes, now
                )
            elif event.what is What.SHED:
                self.failed.add(event.subject)
                self.controller.depart(event.subject, now)

    def used(self, device: int) -> int:
        return self.controller.devices[device].ledger.used
