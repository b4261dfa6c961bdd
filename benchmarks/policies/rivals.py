"""Two servers that treat each request by itself: one model in memory and one batch size each.

Both place requests on the device with the least work, let them wait in order of arrival, and keep
a request's memory from its start to its end, as the original's processes do.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from benchmarks.policies.base import Run
from benchmarks.policies.trace import LEAST_BATCH, LOAD_RATE, OVERHEAD, WORKSPACE, Request


@dataclass(eq=False)
class Served:
    """A request with its memory and batch size."""

    request: Request
    batch: int
    held: int
    left: int


class PerRequest:
    """Common parts; :meth:`choose` says who of the waiting starts, with what batch size."""

    name = ""

    def __init__(self, devices: int, budget: int):
        self.budget = budget
        self.failed: set[str] = set()
        self._waiting: list[deque[Request]] = [deque() for _ in range(devices)]
        self._backlog = [0.0] * devices
        self._held = [0] * devices
        self._ready: list[list[Run]] = [[] for _ in range(devices)]

    @staticmethod
    def fixed(request: Request) -> int:
        return request.model.weights + WORKSPACE + request.input_bytes + request.output_bytes

    def least(self, request: Request) -> int:
        """The smallest batch the policy would run it with."""
        raise NotImplementedError

    def choose(self, waiting: deque[Request], free: int) -> list[tuple[Request, int]]:
        """Take requests from the front of ``waiting``."""
        raise NotImplementedError

    def arrive(self, request: Request, now: float) -> None:
        need = self.fixed(request) + self.least(request) * request.model.sample_bytes
        if need > self.budget:
            self.failed.add(request.id)  # out of memory
            return
        device = min(range(len(self._backlog)), key=self._backlog.__getitem__)
        self._backlog[device] += request.seconds
        self._waiting[device].append(request)

    def start(self, device: int, now: float) -> tuple[list[Run], None]:
        runs = []
        free = self.budget - self._held[device]
        for request, batch in self.choose(self._waiting[device], free):
            held = self.fixed(request) + batch * request.model.sample_bytes
            self._held[device] += held
            served = Served(request, batch, held, request.samples)
            runs.append(self._run(served, device, request.model.weights / LOAD_RATE, now))
        runs += self._ready[device]
        self._ready[device] = []
        return runs, None

    @staticmethod
    def _run(served: Served, device: int, load: float, now: float) -> Run:
        size = min(served.batch, served.left)
        work = OVERHEAD + size * served.request.model.sample_seconds
        return Run(device, work, load, {served.request.id: size}, served, now)

    def done(self, run: Run, now: float) -> list[str]:
        served = run.token
        served.left -= run.parts[served.request.id]
        if served.left:
            self._ready[run.device].append(self._run(served, run.device, 0.0, now))
            return []
        self._held[run.device] -= served.held
        self._backlog[run.device] -= served.request.seconds
        return [served.request.id]

    def used(self, device: int) -> int:
        return self._held[device]


class Unadapted(PerRequest):
    """Each request at the batch size it asks for, when that fits; never, when it cannot."""

    name = "none"

    def least(self, request: Request) -> int:
        return min(request.batch, request.samples)

    def choose(self, waiting: deque[Request], free: int) -> list[tuple[Request, int]]:
        chosen = []
        while waiting:
            batch = self.least(waiting[0])
            free -= self.fixed(waiting[0]) + batch * waiting[0].model.sample_bytes
            if free < 0:
                break
            chosen.append((waiting.popleft(), batch))
        return chosen


class LinearProgram(PerRequest):
    """The paper's: max sum(s b) with sum(m + s b) <= M and 25 <= b <= asked for.

    Solved over those who wait, as many of them in order as can have 25 each; the others are
    postponed.
    """

    name = "lp"

    def least(self, request: Request) -> int:
        return min(LEAST_BATCH, request.batch, request.samples)

    def choose(self, waiting: deque[Request], free: int) -> list[tuple[Request, int]]:
        chosen: list[Request] = []
        for request in waiting:
            least = self.fixed(request) + self.least(request) * request.model.sample_bytes
            if least > free:
                break
            free -= least
            chosen.append(request)
        if not chosen:
            return []
        free += sum(self.least(r) * r.model.sample_bytes for r in chosen)
        for _ in chosen:
            waiting.popleft()
        batches = linear_program(
            [r.model.sample_bytes for r in chosen],
            [self.least(r) for r in chosen],
            [min(r.batch, r.samples) for r in chosen],
            free,
        )
        return list(zip(chosen, batches, strict=True))


def linear_program(costs: list[int], lows: list[int], highs: list[int], free: int) -> list[int]:
    """``b`` that maximises ``costs . b`` with ``costs . b <= free``, rounded down."""
    from scipy.optimize import linprog  # only here: neither tier needs scipy

    if sum(c * h for c, h in zip(costs, highs, strict=True)) <= free:
        return highs
    scale = float(max(costs))
    row = [c / scale for c in costs]
    result = linprog(
        [-c for c in row],
        A_ub=[row],
        b_ub=[free / scale],
        bounds=list(zip(lows, highs, strict=True)),
        method="highs",
    )
    if not result.success:
        raise RuntimeError(f"linear program: {result.message}")
    return [max(low, int(b + 1e-6)) for low, b in zip(lows, result.x, strict=True)]
