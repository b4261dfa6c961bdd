"""Seconds by step, added up over threads."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager

from hapi_compute.store.occupancy import Occupancy


class Timings:
    """Sums; steps of different threads may overlap, so sums may exceed the wall clock.

    :param occupancy: told of steps that are measured with a ``kind``
    """

    def __init__(self, occupancy: Occupancy | None = None):
        self.occupancy = occupancy or Occupancy()
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = defaultdict(float)
        self._cpu: dict[str, float] = defaultdict(float)

    def add(self, step: str, seconds: float, cpu: float = 0.0) -> None:
        with self._lock:
            self._seconds[step] += seconds
            self._cpu[step] += cpu

    @contextmanager
    def measure(self, step: str, kind: str | None = None):
        """:param kind: of :mod:`hapi_compute.store.occupancy`"""
        started, used = time.perf_counter(), time.thread_time()
        with ExitStack() as stack:
            if kind is not None:
                stack.enter_context(self.occupancy.busy(kind))
            try:
                yield
            finally:
                self.add(step, time.perf_counter() - started, time.thread_time() - used)

    def snapshot(self) -> dict[str, float]:
        with self._lock:
            return dict(self._seconds)

    def cpu(self) -> dict[str, float]:
        """The same in CPU seconds of the threads that measured: what the step takes when nothing
        else runs, however many others it had to share its CPU with."""
        with self._lock:
            return dict(self._cpu)
