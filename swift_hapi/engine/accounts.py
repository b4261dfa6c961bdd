"""What accounts may have under way, and what they have used. Event loop only.

Accounts are the requesters', as the filter names them. The engine forgets an idle account's
bucket and count, and keeps the totals of no more than ``_KEPT`` accounts.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from swift_hapi.protocol.errors import AccountLimit

_KEPT = 10_000


@dataclass
class Usage:
    """Totals of one account since the engine's start."""

    requests: int = 0
    samples: int = 0
    cpu_seconds: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0

    def add(self, other: Usage) -> None:
        self.requests += other.requests
        self.samples += other.samples
        self.cpu_seconds += other.cpu_seconds
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out


class AccountLimits:
    """
    :param concurrency: requests of one account, waiting or admitted
    :param rate: requests of one account per second, on average; 0 for no limit. An account that
        was idle may send as many at once as it may send in a second
    :param retry_after: estimate, in seconds, of when one of an account's requests may be done
    """

    def __init__(
        self,
        concurrency: int,
        rate: float,
        retry_after: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._concurrency = concurrency
        self._rate = rate
        self._burst = max(1.0, rate)
        self._retry_after = retry_after
        self._clock = clock
        self._under_way: Counter[str] = Counter()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def enter(self, account: str) -> None:
        """Count one request; :meth:`leave` must follow.

        :raises AccountLimit: the account has enough under way, or sends too often
        """
        if self._under_way[account] >= self._concurrency:
            raise AccountLimit(
                f"account {account} has {self._under_way[account]} requests under way",
                retry_after=self._retry_after(),
            )
        if self._rate:
            self._draw(account)
        self._under_way[account] += 1

    def leave(self, account: str) -> None:
        self._under_way[account] -= 1
        if self._under_way[account] <= 0:
            del self._under_way[account]

    def _draw(self, account: str) -> None:
        now = self._clock()
        tokens, at = self._buckets.pop(account, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        enough = tokens >= 1.0
        self._buckets[account] = (tokens - enough, now)
        # Full buckets are those of newcomers: nothing is lost with them.
        while self._buckets:
            first = next(iter(self._buckets))
            kept, since = self._buckets[first]
            if kept + (now - since) * self._rate < self._burst and len(self._buckets) <= _KEPT:
                break
            del self._buckets[first]
        if not enough:
            raise AccountLimit(
                f"account {account} sends more than {self._rate:g} requests per second",
                retry_after=max(1, math.ceil((1.0 - tokens) / self._rate)),
            )


class Ledger:
    """Totals by account; the ones used longest ago are dropped beyond a bound."""

    def __init__(self):
        self._usage: OrderedDict[str, Usage] = OrderedDict()

    def charge(self, account: str, usage: Usage) -> None:
        total = self._usage.setdefault(account, Usage())
        total.add(usage)
        self._usage.move_to_end(account)
        while len(self._usage) > _KEPT:
            self._usage.popitem(last=False)

    def top(self, count: int) -> dict[str, Usage]:
        """Accounts with most CPU time, most first."""
        every = sorted(self._usage.items(), key=lambda item: -item[1].cpu_seconds)
        return dict(every[:count])
