"""One reader in front of many: which way a shard is read is decided when its turn comes.

A route is a name ("raw", a cut's name, ...). The samples are the same by every route, so shards
of one batch may have come by different ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hapi_compute.data.shards import Job, Reader, ShardSamples
from hapi_compute.store.occupancy import FETCH, Moment, Occupancy


@dataclass
class Brought:
    """What shards read by one route brought; ``cpu`` seconds of the reading threads.

    ``waited`` is the sum over requests of the seconds until the first byte, ``sent`` of those
    from there to the last. ``storage`` is the sum of ``Server-Timing``.
    """

    shards: int = 0
    samples: int = 0
    requests: int = 0
    bytes: int = 0
    fallbacks: int = 0
    cpu: float = 0.0
    waited: float = 0.0
    sent: float = 0.0
    storage: dict[str, float] = field(default_factory=dict)

    def add(self, shard: ShardSamples, cpu: float) -> None:
        self.shards += 1
        self.samples += len(shard)
        self.requests += len(shard.times)
        self.bytes += shard.bytes_received
        self.fallbacks += shard.fallback
        self.cpu += cpu
        for started, first, last in shard.times:
            self.waited += first - started
            self.sent += last - first
        for step, seconds in shard.storage.items():
            self.storage[step] = self.storage.get(step, 0.0) + seconds


@dataclass(frozen=True)
class Stretch:
    """A time in which one route alone was used: what it brought, and who was busy meanwhile.

    It ends with the last shard that was complete.
    """

    route: str
    brought: Brought
    took: Moment


class Router:
    """:param readers: makes the reader of a route, once
    :param route: to begin with
    """

    def __init__(self, readers: Callable[[str], Reader], route: str, occupancy: Occupancy):
        self._make = readers
        self._readers: dict[str, Reader] = {}
        self._occupancy = occupancy
        self._lock = threading.Lock()
        self._route = route
        self._once: str | None = None
        self._early: dict[tuple[int, str], ShardSamples] = {}
        self._under_way: dict[str, int] = {}
        self._begin: Moment | None = None
        self._end: Moment | None = None
        self._brought = Brought()
        self._cold = 0
        self._strays: list[tuple[str, Brought]] = []

    @property
    def route(self) -> str:
        return self._route

    def reader(self, route: str) -> Reader:
        with self._lock:
            if route not in self._readers:
                self._readers[route] = self._make(route)
            return self._readers[route]

    def switch(self, route: str, warm_up: int = 0) -> None:
        """Read what follows by ``route``; shards under way come as they were asked for.

        :param warm_up: so many shards are no part of the stretch that begins: the first ones meet
            a tier that has never computed this
        """
        self.reader(route)
        with self._lock:
            self._route = route
            self._once = None
            self._cold = warm_up
            self._restart()

    def once(self, route: str) -> None:
        """Read one shard by ``route``, to see how that way is."""
        self.reader(route)
        with self._lock:
            self._once = route

    def keep(self, job: Job, samples: ShardSamples) -> None:
        """Hand this out when ``job`` is asked for; it has been read already."""
        self._early[job.epoch, job.shard.name] = samples

    def restart(self) -> None:
        """Begin a new stretch."""
        with self._lock:
            self._restart()

    def stretch(self) -> Stretch | None:
        """The present stretch so far; None before anything was complete in it."""
        with self._lock:
            if self._begin is None or self._end is None:
                return None
            return Stretch(self._route, self._brought, self._end.since(self._begin))

    def strays(self) -> list[tuple[str, Brought]]:
        """Shards that came by another route than the present one, each handed out once."""
        with self._lock:
            found, self._strays = self._strays, []
            return found

    def expected_bytes(self, job: Job) -> int:
        return self.reader(self._route).expected_bytes(job)

    def read(self, job: Job, sleep) -> ShardSamples:
        early = self._early.pop((job.epoch, job.shard.name), None)
        if early is not None:
            return early
        with self._lock:
            route, self._once = self._once or self._route, None
            if route != self._route:
                self._begin = None  # The stretch is spoilt; it begins anew after this shard.
            elif self._begin is None and not self._foreign():
                self._restart()
            self._under_way[route] = self._under_way.get(route, 0) + 1
        used = time.thread_time()
        try:
            with self._occupancy.busy(FETCH):
                samples = self.reader(route).read(job, sleep)
        finally:
            with self._lock:
                self._under_way[route] -= 1
        with self._lock:
            self._complete(route, samples, time.thread_time() - used)
        return samples

    def _foreign(self) -> bool:
        return any(n for route, n in self._under_way.items() if route != self._route)

    def _restart(self) -> None:
        self._brought, self._end = Brought(), None
        self._begin = None if self._foreign() else self._occupancy.now()

    def _complete(self, route: str, samples: ShardSamples, cpu: float) -> None:
        if route != self._route:
            stray = Brought()
            stray.add(samples, cpu)
            self._strays.append((route, stray))
            if self._begin is None:
                self._restart()
            return
        if self._begin is None or self._cold:
            self._cold = max(0, self._cold - 1)
            self._restart()
            return
        self._brought.add(samples, cpu)
        self._end = self._occupancy.now()
