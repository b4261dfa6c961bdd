"""Who may send an object's bytes, and how much memory the engine gives away. Pure asyncio.

Two pools, so that requests which hold their object cannot block each other for good:

* *admission*: a place in the bounded queue and memory for the object's bytes, granted before the
  first byte is read, within ``admission_timeout``;
* *work*: memory for decoded micro-batches and the response, granted whole before decoding.

Who holds work memory never waits for admission, hence no cycle. The third share, for what the
network itself needs while it runs, only bounds the micro-batch (see :class:`Shares`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from swift_hapi.engine.pools import Pool
from swift_hapi.protocol.errors import AccountLimit, EngineBusy, TooLarge


@dataclass(frozen=True)
class Shares:
    """How a memory budget (bytes) is divided: objects 1/4, work 1/2, activations 1/4."""

    objects: int
    work: int
    activations: int

    @classmethod
    def of(cls, budget: int) -> Shares:
        quarter = budget // 4
        return cls(quarter, budget - 2 * quarter, quarter)


class Ticket:
    """A request's place and memory; give it back once with :meth:`release`."""

    def __init__(self, admission: Admission, account: str, nbytes: int):
        self._admission = admission
        self._account = account
        self._nbytes = nbytes
        self._work = 0

    async def work_memory(self, nbytes: int) -> None:
        """Wait, without an end of its own, for ``nbytes`` of work memory.

        :raises TooLarge: more than the whole share
        """
        pool = self._admission.work
        if not pool.fits_ever(nbytes):
            raise TooLarge(
                f"the request needs {nbytes} bytes of work memory, the node has "
                f"{pool.capacity[0]} in all: ask for fewer samples or a smaller micro-batch"
            )
        await pool.acquire(nbytes)
        self._work = nbytes

    def release(self) -> None:
        admission, self._admission = self._admission, None
        if admission is None:
            return
        if self._work:
            admission.work.release(self._work)
        admission.queue.release(1, self._nbytes)
        admission.leave(self._account)


class Admission:
    """Admission control of one engine.

    :param places: requests admitted at once; as many again may wait to be admitted
    :param account_concurrency: requests of one account, waiting or admitted
    :param shares: division of the memory budget
    :param retry_after: seconds to tell whom is refused
    """

    def __init__(self, places: int, account_concurrency: int, shares: Shares, retry_after: int):
        self.queue = Pool(places, shares.objects)
        self.work = Pool(shares.work)
        self.shares = shares
        self._accounts: Counter[str] = Counter()
        self._account_concurrency = account_concurrency
        self._retry_after = retry_after

    @property
    def admitted(self) -> int:
        return self.queue.used[0]

    def leave(self, account: str) -> None:
        self._accounts[account] -= 1
        if self._accounts[account] <= 0:
            del self._accounts[account]

    async def admit(self, account: str, nbytes: int, timeout: float) -> Ticket:
        """A place, and memory for ``nbytes``, within ``timeout`` seconds.

        :raises AccountLimit: the account has enough under way
        :raises EngineBusy: no place or memory in time, or too many wait already
        :raises TooLarge: more than the share for objects
        """
        if not self.queue.fits_ever(1, nbytes):
            raise TooLarge(
                f"the object needs {nbytes} bytes of memory, the node has "
                f"{self.queue.capacity[1]} for objects in all"
            )
        if self._accounts[account] >= self._account_concurrency:
            raise AccountLimit(
                f"account {account} has {self._accounts[account]} requests under way",
                retry_after=self._retry_after,
            )
        if self.queue.waiting >= self.queue.capacity[0]:
            raise self._busy("too many requests wait to be admitted")
        self._accounts[account] += 1
        try:
            await self.queue.acquire(1, nbytes, timeout=max(0.0, timeout))
        except asyncio.TimeoutError:
            self.leave(account)
            raise self._busy(
                f"no place and memory within the admission time: {self.queue.used[0]} of "
                f"{self.queue.capacity[0]} places and {self.queue.used[1]} of "
                f"{self.queue.capacity[1]} bytes are taken"
            ) from None
        except BaseException:
            self.leave(account)
            raise
        return Ticket(self, account, nbytes)

    def _busy(self, why: str) -> EngineBusy:
        return EngineBusy(why, retry_after=self._retry_after)
