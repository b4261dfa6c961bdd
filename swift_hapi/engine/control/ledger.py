"""Every byte of one device that somebody may rely on.

``held`` (inputs and outputs of requests) + weights + reservations of micro-batches under way never
exceed the budget: each is booked here before it is used, and only when it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from swift_hapi.engine.control.admission import Gate
from swift_hapi.engine.control.eviction import Weights
from swift_hapi.engine.control.types import ControlConfig


class Ledger:
    """:param evicted: told each digest whose weights must go"""

    def __init__(self, budget: int, config: ControlConfig, evicted: Callable[[str], None]):
        self.budget = budget
        self.door = Gate(int(budget * config.input_share), config.places)
        self.seats = Gate(int(budget * config.output_share), config.places, oversize=True)
        self.weights = Weights()
        self.reserved = 0
        self._evicted = evicted

    @property
    def held(self) -> int:
        """Input and output bytes of requests."""
        return self.door.total + self.seats.total

    @property
    def used(self) -> int:
        return self.held + self.reserved + self.weights.total

    @property
    def free(self) -> int:
        return self.budget - self.used

    def clear(self, nbytes: int, keep: Container[str]) -> bool:
        """Have ``nbytes`` free, if need be by evicting idle weights other than ``keep``.

        Evicts nothing when that would not be enough.
        """
        short = nbytes - self.free
        if short <= 0:
            return True
        if self.weights.evictable(keep) < short:
            return False
        for digest in self.weights.evict(short, keep):
            self._evicted(digest)
        return True

    def pending(self, need: int) -> int:
        """Bytes to keep free for requests that wait at the gates.

        Never so much that less than ``need`` is left: who waits outside gets its bytes from
        whoever is done inside, so those inside must be able to go on.
        """
        wanted = self.door.pending() + self.seats.pending()
        return max(0, min(wanted, self.budget - self.held - need))
