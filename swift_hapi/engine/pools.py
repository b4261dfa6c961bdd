"""First come, first served shares of bounded resources. Pure asyncio.

A pool holds a vector of capacities, e.g. (places, bytes). A demand is granted whole or waits
behind those that came before it: a large demand cannot be starved by a stream of small ones.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Pool:
    """:param capacity: one integer per resource; a demand is a vector of the same length"""

    def __init__(self, *capacity: int):
        self.capacity = capacity
        self.used = [0] * len(capacity)
        self._waiters: deque[tuple[tuple[int, ...], asyncio.Future]] = deque()

    @property
    def waiting(self) -> int:
        """Demands that are neither granted nor given up."""
        return sum(not future.done() for _, future in self._waiters)

    def fits_ever(self, *demand: int) -> bool:
        """Whether ``demand`` could be granted if nothing else were."""
        return all(d <= c for d, c in zip(demand, self.capacity, strict=True))

    def _fits(self, demand: tuple[int, ...]) -> bool:
        return all(
            u + d <= c for u, d, c in zip(self.used, demand, self.capacity, strict=True)
        )

    def _grant(self, demand: tuple[int, ...]) -> None:
        self.used = [u + d for u, d in zip(self.used, demand, strict=True)]

    async def acquire(self, *demand: int, timeout: float | None = None) -> None:
        """Wait for ``demand``; to be given back with :meth:`release`.

        :raises asyncio.TimeoutError: not granted within ``timeout`` seconds
        :raises ValueError: it can never be granted
        """
        if not self.fits_ever(*demand):
            raise ValueError(f"{demand} exceeds {self.capacity}")
        if not self.waiting and self._fits(demand):
            self._grant(demand)
            return
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((demand, future))
        try:
            done, _ = await asyncio.wait({future}, timeout=timeout)
        except asyncio.CancelledError:
            self._give_up(future, demand)
            raise
        if not done:
            self._give_up(future, demand)
            raise asyncio.TimeoutError

    def _give_up(self, future: asyncio.Future, demand: tuple[int, ...]) -> None:
        if future.done():
            self.release(*demand)  # granted in the same turn of the loop
            return
        future.cancel()
        self._wake()  # who stood behind a large demand may fit

    def release(self, *demand: int) -> None:
        self.used = [u - d for u, d in zip(self.used, demand, strict=True)]
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            demand, future = self._waiters[0]
            if not future.done():
                if not self._fits(demand):
                    return
                self._grant(demand)
                future.set_result(None)
            self._waiters.popleft()
