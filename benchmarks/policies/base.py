"""What a policy is to the simulator, and a made-up device.

A device shares its time equally among the micro-batches that are in it, as a GPU with several
processes does; loading weights takes its own time before. Micro-batches cost a fixed time and a
time per sample.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.policies.trace import Request


@dataclass(eq=False)
class Run:
    """A micro-batch as the simulator sees it.

    :param parts: samples per request id
    :param token: whatever the policy wants back
    """

    device: int
    work: float
    load: float
    parts: dict[str, int]
    token: object = None
    started: float = 0.0


class Policy(Protocol):
    """All calls carry the simulated time. ``failed`` collects ids that will never be served."""

    name: str
    failed: set[str]

    def arrive(self, request: Request, now: float) -> float | None:
        """Take a request; or the time at which its client should come again."""

    def start(self, device: int, now: float) -> tuple[list[Run], float | None]:
        """Micro-batches to start, and when to be asked again at the latest."""

    def done(self, run: Run, now: float) -> Iterable[str]:
        """Ids of requests that are complete."""

    def used(self, device: int) -> int:
        """Bytes granted on a device."""


@dataclass
class SharedDevice:
    """Processor sharing in virtual time: with k runs inside, each advances at 1/k."""

    clock: float = 0.0
    virtual: float = 0.0
    busy: float = 0.0
    runs: list = field(default_factory=list)
    _ids: itertools.count = field(default_factory=itertools.count)

    def advance(self, now: float) -> None:
        if self.runs:
            self.virtual += (now - self.clock) / len(self.runs)
            self.busy += now - self.clock
        self.clock = now

    def add(self, run: Run, now: float) -> None:
        self.advance(now)
        heapq.heappush(self.runs, (self.virtual + run.work, next(self._ids), run))

    def next_end(self) -> float | None:
        """When the first run ends if nothing changes."""
        if not self.runs:
            return None
        return self.clock + max(0.0, self.runs[0][0] - self.virtual) * len(self.runs)

    def pop(self, now: float) -> Run:
        """The first run, which ends now."""
        self.advance(now)
        end, _, run = heapq.heappop(self.runs)
        self.virtual = max(self.virtual, end)
        return run
