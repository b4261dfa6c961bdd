"""Seconds by step, added up over threads."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from contextlib import contextmanager


class Timings:
    """Sums; steps of different threads may overlap, so sums may exceed the wall clock."""

    def __init__(self):
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = defaultdict(float)

    def add(self, step: str, seconds: float) -> None:
        with self._lock:
            self._seconds[step] += seconds

    @contextmanager
    def measure(self, step: str):
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(step, time.perf_counter() - started)

    def snapshot(self) -> dict[str, float]:
        with self._lock:
            return dict(self._seconds)
