"""The one thread that runs networks, and how a long run makes way for others'.

Between two nodes of a run the thread may do something else: another run, from its beginning to its
end. So whoever comes behind a network that takes minutes for one sample does not wait for minutes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future

from swift_hapi.engine.turns import give_up, settle


class Network(Executor):
    """:param thread: a single one; it must not be used by anybody else"""

    def __init__(self, thread: Executor):
        self._thread = thread
        self._lock = threading.Lock()
        self._queue: deque[tuple[Future, Callable]] = deque()

    def submit(self, function: Callable, /, *args, **kwargs) -> Future:
        future: Future = Future()
        with self._lock:
            self._queue.append((future, lambda: function(*args, **kwargs)))
            # As often as there is work; what has been done by then was done on the way.
            self._thread.submit(self.do_next)
        return future

    def do_next(self) -> bool:
        """Do what waits longest; False when nothing does. For the thread itself."""
        with self._lock:
            future, function = self._queue.popleft() if self._queue else (None, None)
        if future is None:
            return False
        if future.set_running_or_notify_cancel():
            settle(future, function)
        return True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            with self._lock:
                left = [future for future, _ in self._queue]
                self._queue.clear()
            give_up(left)
        self._thread.shutdown(wait, cancel_futures=cancel_futures)


class Stint:
    """One run's time in the thread, from its making on.

    :param patience: seconds after which it makes way, each time for no longer than it had itself
    :param overrun: called once, from the thread, when it has had as much
    """

    def __init__(
        self,
        network: Network,
        patience: float,
        overrun: Callable[[], None],
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
    ):
        self._network = network
        self._overrun: Callable[[], None] | None = overrun
        self._clock, self._cpu_clock = clock, cpu_clock
        self._began, self._cpu_began = clock(), cpu_clock()
        self._away = self._cpu_away = 0.0
        self._until = self._began + patience

    def make_way(self) -> None:
        """To be called between nodes."""
        now = self._clock()
        if now < self._until:
            return
        if self._overrun is not None:
            self._overrun()
            self._overrun = None
        cpu = self._cpu_clock()
        if self._network.do_next():
            back = self._clock()
            self._away += back - now
            self._cpu_away += self._cpu_clock() - cpu
            self._until = back + (back - now)

    def spent(self) -> tuple[float, float]:
        """Seconds, and seconds of the thread's CPU, without those of the others."""
        return (
            self._clock() - self._began - self._away,
            self._cpu_clock() - self._cpu_began - self._cpu_away,
        )
