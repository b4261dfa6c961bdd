"""Service that accounts received, as a virtual time per account, over all devices.

Fair queueing with start times: the account with the least service goes first; one that comes back
from idling starts where the others are and cannot claim the time it did not use. (After Goyal,
Vin, Cheng, "Start-time Fair Queueing", 1996; with several servers the virtual time of the system
is that of the active account which is furthest behind.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class AccountClock:
    """Virtual times, in seconds of service."""

    def __init__(self):
        self._time: dict[str, float] = {}
        self._active: Counter[str] = Counter()
        self._floor = 0.0

    def _advance(self) -> None:
        if self._active:
            time = self._time
            self._floor = max(self._floor, min(time[account] for account in self._active))

    def enter(self, account: str) -> None:
        """One more request of ``account`` is queued."""
        if not self._active[account]:
            del self._active[account]
            self._advance()
            self._time[account] = max(self._time.get(account, 0.0), self._floor)
        self._active[account] += 1

    def leave(self, account: str) -> None:
        """One of its requests is through. When nobody is left, all is forgotten."""
        self._active[account] -= 1
        if not self._active[account]:
            del self._active[account]
            if not self._active:
                self._time.clear()
                self._floor = 0.0
            elif len(self._time) > 1024 + 2 * len(self._active):
                self._advance()
                self._time = {
                    a: t for a, t in self._time.items() if a in self._active or t > self._floor
                }

    def __getitem__(self, account: str) -> float:
        return self._time.get(account, self._floor)

    def first(self, accounts: Iterable[str]) -> float:
        """The least virtual time among ``accounts``."""
        time, floor = self._time, self._floor
        return min(time.get(account, floor) for account in accounts)

    def charge(self, charges: dict[str, float]) -> None:
        """Add seconds of service; negative ones correct an estimate that was too high."""
        for account, seconds in charges.items():
            if account in self._time:
                self._time[account] += seconds
