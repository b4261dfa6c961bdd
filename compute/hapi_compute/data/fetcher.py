"""Several shards in flight, handed out in order, with bounded memory."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future

from hapi_compute.data.shards import Job, Reader, ShardSamples

#: seconds to wait for the workers at close; one in the middle of a request is left to itself
_JOIN = 2.0


class Fetcher:
    """Iterator over the shards of ``jobs``, in their order.

    Shards under way or waiting to be taken are at most ``prefetch`` and, by the reader's
    estimate, ``max_bytes``; one is always allowed. A failure is raised when its shard's turn
    comes. Use as a context manager, or call :meth:`close`.

    :param concurrency: requests at once
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        reader: Reader,
        *,
        concurrency: int = 2,
        prefetch: int = 4,
        max_bytes: int = 256 << 20,
    ):
        self._jobs: Iterator[Job] = iter(jobs)
        self._next_job = next(self._jobs, None)
        self._reader = reader
        self._prefetch = prefetch
        self._max_bytes = max_bytes
        self._ahead: deque[tuple[Future, int]] = deque()
        self._ahead_bytes = 0
        self._work: queue.SimpleQueue = queue.SimpleQueue()
        self._stop = threading.Event()
        # Daemons: a request that hangs must not keep the interpreter from ending.
        self._threads = [
            threading.Thread(target=self._run, name=f"hapi-fetch-{n}", daemon=True)
            for n in range(concurrency)
        ]
        for thread in self._threads:
            thread.start()
        self._top_up()

    def __iter__(self) -> Fetcher:
        return self

    def __next__(self) -> ShardSamples:
        if not self._ahead:
            raise StopIteration
        future, expected = self._ahead[0]
        result = future.result()
        self._ahead.popleft()
        self._ahead_bytes -= expected
        # At once, so that the next ones travel while this one is used.
        self._top_up()
        return result

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, kind, *_exc) -> None:
        # Whoever interrupts does not want to wait.
        self.close(_JOIN if kind is None or issubclass(kind, Exception) else 0.0)

    def close(self, patience: float = _JOIN) -> None:
        """Stop; what is under way is dropped, pauses before retries end at once.

        :param patience: seconds to wait for what is under way, in all
        """
        self._stop.set()
        for future, _ in self._ahead:
            future.cancel()
        for _ in self._threads:
            self._work.put(None)
        deadline = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _top_up(self) -> None:
        while self._next_job is not None and not self._stop.is_set():
            expected = self._reader.expected_bytes(self._next_job)
            full = len(self._ahead) >= self._prefetch
            if self._ahead and (full or self._ahead_bytes + expected > self._max_bytes):
                return
            future: Future = Future()
            self._ahead.append((future, expected))
            self._ahead_bytes += expected
            self._work.put((future, self._next_job))
            self._next_job = next(self._jobs, None)

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            future, job = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = self._reader.read(job, self._stop.wait)
            except BaseException as error:  # noqa: BLE001 - carried to the consumer
                future.set_exception(error)
            else:
                future.set_result(result)
            # Do not hold a shard's memory while waiting for the next one.
            del item, future, job
            result = None
