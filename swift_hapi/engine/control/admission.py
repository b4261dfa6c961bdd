"""Bytes that requests hold for long: a share of the budget, fairly given, with a waiting room.

A device has two gates. The *door* gives memory for an object's bytes before they are read; the
*seats* give memory for the response before any sample is decoded. Whoever is seated needs nothing
but compute, and whoever is at the door holds no more than the door's share: so the two cannot
wait for each other.

An account may hold no more than it leaves to others (or one request): one that floods the node
fills half of it, two fill two thirds, and a newcomer always finds something left. (Choudhury and
Hahne, "Dynamic queue length thresholds", 1998.)
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable

from swift_hapi.engine.control.queueing import Job

_BY_AGE = 8  # every so many admissions the longest waiting account goes first


def _fair(own: int, total: int, cap: int, more: int) -> bool:
    """Whether an account that has ``own`` of ``total`` may have ``more``."""
    return not own or own + more <= cap - total - more


class Gate:
    """:param cap: bytes given at most
    :param places: requests that hold bytes at most
    :param oversize: a demand above ``cap`` is granted when nobody else holds anything
    """

    def __init__(self, cap: int, places: int, oversize: bool = False):
        self.cap = cap
        self.places = places
        self.total = 0
        self.waiting = 0
        self.waiting_bytes = 0
        self._oversize = oversize
        self._held: Counter[str] = Counter()
        self._count: Counter[str] = Counter()
        self._holders = 0
        self._room: OrderedDict[str, deque[tuple[Job, int]]] = OrderedDict()
        self._next: str | None = None
        self._served = 0

    @property
    def holders(self) -> int:
        return self._holders

    def hold(self, account: str, nbytes: int) -> None:
        self.total += nbytes
        self._held[account] += nbytes
        self._count[account] += 1
        self._holders += 1

    def release(self, account: str, nbytes: int) -> None:
        """Give back the bytes; the place is kept until :meth:`leave`."""
        self.total -= nbytes
        self._held[account] -= nbytes

    def leave(self, account: str) -> None:
        self._holders -= 1
        self._count[account] -= 1
        if not self._count[account]:
            del self._count[account], self._held[account]

    def allows(self, account: str, nbytes: int) -> bool:
        """Whether the account's own holdings leave it ``nbytes`` and a place more."""
        return _fair(self._held[account], self.total, self.cap, nbytes) and _fair(
            self._count[account], self._holders, self.places, 1
        )

    def has(self, nbytes: int) -> bool:
        """Whether bytes and a place are left in all."""
        if self._holders >= self.places:
            return False
        return self.total + nbytes <= self.cap or (self._oversize and not self.total)

    # -- the waiting room ---------------------------------------------------------------------

    def join(self, job: Job, nbytes: int) -> None:
        self._room.setdefault(job.account, deque()).append((job, nbytes))
        self.waiting += 1
        self.waiting_bytes += nbytes

    def room_for(self, account: str, size: int) -> bool:
        """Whether the waiting room of ``size`` takes one more of ``account``."""
        own = len(self._room.get(account, ()))
        return self.waiting < size and _fair(own, self.waiting, size, 1)

    def head(self, rank: Callable[[str], float] = lambda account: 0.0) -> tuple[Job, int] | None:
        """Who is next: of the accounts not kept back by what they hold, the one that ``rank``
        puts lowest; in turn, when these are equal; now and then the one that waits longest.

        It stays the same until it is admitted or leaves, so a large demand is not overtaken by
        small ones for ever.
        """
        if self._next in self._room and self.allows(self._next, self._room[self._next][0][1]):
            return self._room[self._next][0]
        open_ = (a for a, claims in self._room.items() if self.allows(a, claims[0][1]))
        if self._served % _BY_AGE == _BY_AGE - 1:
            self._next = next(open_, None)
        else:
            self._next = min(open_, key=rank, default=None)
        return None if self._next is None else self._room[self._next][0]

    def quit(self, job: Job, served: bool = False) -> None:
        """``job`` waits no longer: served, and then its account is the last in turn, or gone."""
        self._next = None
        self._served += served
        claims = self._room[job.account]
        place = next(i for i, (other, _) in enumerate(claims) if other is job)
        self.waiting -= 1
        self.waiting_bytes -= claims[place][1]
        del claims[place]
        if not claims:
            del self._room[job.account]
        elif served:
            self._room.move_to_end(job.account)

    def pending(self) -> int:
        """Bytes that should come free for those who wait, as far as the cap allows."""
        if not self.waiting:
            return 0
        wanted = min(self.waiting_bytes, max(0, self.cap - self.total))
        if self._oversize and not self.total:
            head = self.head()
            wanted = max(wanted, head[1] if head else 0)
        return wanted
