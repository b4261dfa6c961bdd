"""Counts of what went over the network."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Counts:
    """``requests`` answered or failed, ``retries`` among them, body bytes either way; ``logins``
    are tokens that were asked for."""

    requests: int = 0
    retries: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    logins: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))


class Counters:
    """A :class:`Counts` that many threads add to."""

    def __init__(self):
        self._lock = threading.Lock()
        self._counts = Counts()

    def add(self, **amounts: int) -> None:
        with self._lock:
            now = self._counts
            self._counts = Counts(
                *(getattr(now, f.name) + amounts.get(f.name, 0) for f in fields(now))
            )

    def snapshot(self) -> Counts:
        with self._lock:
            return self._counts
