"""Who is busy when: counts of activities under way, and the seconds that each kind had any.

The union of intervals per kind is what tells a stage's rate when several requests overlap: the
sum would count the same second once for every request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

#: kinds, by priority: a second in which several are under way is attributed to the first of them
COMPUTE, RECEIVE, NETWORK, STORAGE, IDLE = "compute", "receive", "network", "storage", "idle"
#: a shard being read, from request to rows; in no split of seconds, it contains the others
FETCH = "fetch"
_PRIORITY = (COMPUTE, RECEIVE, NETWORK, STORAGE)


@dataclass(frozen=True)
class Moment:
    """Seconds until ``at`` (by the clock): ``busy`` with one or more of a kind, ``split`` one
    kind only (or idle) at any time."""

    at: float
    busy: dict[str, float]
    split: dict[str, float]

    def since(self, earlier: Moment) -> Moment:
        return Moment(
            self.at - earlier.at,
            {kind: s - earlier.busy[kind] for kind, s in self.busy.items()},
            {kind: s - earlier.split[kind] for kind, s in self.split.items()},
        )


class Occupancy:
    """Adds up on every change; safe to use from many threads."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._lock = threading.Lock()
        self._running = dict.fromkeys((*_PRIORITY, FETCH), 0)
        self._busy = dict.fromkeys(self._running, 0.0)
        self._split = dict.fromkeys((*_PRIORITY, IDLE), 0.0)
        self._last = clock()

    def _advance(self) -> None:
        now = self._clock()
        passed, self._last = now - self._last, now
        for kind, running in self._running.items():
            if running:
                self._busy[kind] += passed
        kind = next((kind for kind in _PRIORITY if self._running[kind]), IDLE)
        self._split[kind] += passed

    @contextmanager
    def busy(self, kind: str):
        """The block is an activity of that kind."""
        with self._lock:
            self._advance()
            self._running[kind] += 1
        try:
            yield
        finally:
            with self._lock:
                self._advance()
                self._running[kind] -= 1

    def now(self) -> Moment:
        with self._lock:
            self._advance()
            return Moment(self._last, dict(self._busy), dict(self._split))
