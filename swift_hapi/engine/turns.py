"""Work of many accounts on few threads, an account's next piece after one of every other's.

A model that is hard to examine keeps its thread for seconds. Whoever binds one after the other
must not make all others wait behind them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextvars import ContextVar

#: on whose behalf the present task works
ON_BEHALF_OF: ContextVar[str] = ContextVar("account", default="")


class Turns(Executor):
    """:param threads: does the work; it must not be used by anybody else

    What is submitted counts for the account that :data:`ON_BEHALF_OF` names at that moment.
    """

    def __init__(self, threads: Executor):
        self._threads = threads
        self._lock = threading.Lock()
        # The account whose turn it is comes first.
        self._queues: dict[str, deque[tuple[Future, Callable]]] = {}

    def submit(self, function: Callable, /, *args, **kwargs) -> Future:
        future: Future = Future()
        work = future, lambda: function(*args, **kwargs)
        account = ON_BEHALF_OF.get()
        with self._lock:
            self._queues.setdefault(account, deque()).append(work)
            # As often as there is work, and then it is seen whose is to be done.
            self._threads.submit(self._do_one)
        return future

    def pending(self) -> int:
        """How much waits of the account that :data:`ON_BEHALF_OF` names."""
        with self._lock:
            return len(self._queues.get(ON_BEHALF_OF.get(), ()))

    def _next(self) -> tuple[Future, Callable] | None:
        with self._lock:
            while self._queues:
                account = next(iter(self._queues))
                queue = self._queues.pop(account)
                work = None
                while queue and work is None:
                    future, function = queue.popleft()
                    if future.set_running_or_notify_cancel():
                        work = future, function
                if queue:
                    self._queues[account] = queue
                if work is not None:
                    return work
        return None

    def _do_one(self) -> None:
        work = self._next()
        if work is None:
            return
        settle(*work)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            with self._lock:
                left = [future for queue in self._queues.values() for future, _ in queue]
                self._queues.clear()
            give_up(left)
        self._threads.shutdown(wait, cancel_futures=cancel_futures)


def settle(future: Future, function: Callable) -> None:
    """Run ``function``, and tell whoever waits for ``future`` what came of it."""
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
        future.set_exception(error)
    else:
        future.set_result(result)


def give_up(futures: Iterable[Future]) -> None:
    """Cancel what has not begun."""
    for future in futures:
        future.cancel()
        future.set_running_or_notify_cancel()
