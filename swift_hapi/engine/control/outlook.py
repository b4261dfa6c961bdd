"""What is still to come at one device, and how long all of it will take at the pace of late."""

from __future__ import annotations

from collections import Counter

from swift_hapi.engine.control.laneset import LaneSet
from swift_hapi.engine.control.ledger import Ledger
from swift_hapi.engine.control.placement import Offer
from swift_hapi.engine.control.queueing import Job
from swift_hapi.engine.control.types import ControlConfig, Ticket

_FADE = 0.9  # of what was measured before, with each micro-batch
_LEAST_RETRY = 0.1
_TICK = 1e-6  # no measured time is shorter


class Outlook:
    """``coming``: requests per digest that are admitted but not queued yet."""

    def __init__(self, config: ControlConfig, ledger: Ledger, lanes: LaneSet):
        self.config = config
        self.ledger = ledger
        self.lanes = lanes
        self.coming: Counter[str] = Counter()
        self._expected = 0.0
        self._mark = 0.0
        self._work = 0.0
        self._wall = 0.0

    # -- what is coming -----------------------------------------------------------------------

    def announce(self, job: Job) -> None:
        """An admitted request will ask for a lane of its digest, if it says for which."""
        if job.ticket.digest is not None:
            self.coming[job.ticket.digest] += 1

    def arrived(self, job: Job) -> None:
        """It has asked, or never will."""
        digest = job.ticket.digest
        if digest is not None:
            self.coming[digest] -= 1
            if not self.coming[digest]:
                del self.coming[digest]

    def expect(self, job: Job, seconds: float) -> None:
        """A request that no lane counts will take so long; 0 when one does, or it is over."""
        self._expected += seconds - job.expected
        job.expected = seconds

    # -- the pace -----------------------------------------------------------------------------

    def resume(self, now: float) -> None:
        """From now on the device works again, or at something else."""
        self._mark = now

    def measured(self, seconds: float, now: float) -> None:
        """A micro-batch ends now that took ``seconds`` by itself; :meth:`resume` follows."""
        self._work = _FADE * self._work + max(_TICK, seconds)
        self._wall = _FADE * self._wall + max(_TICK, now - self._mark)

    # -- estimates ----------------------------------------------------------------------------

    def expected_seconds(self) -> float:
        """Until everything placed here is done, at the pace measured lately."""
        work = self.lanes.backlog() + max(0.0, self._expected)
        pace = self._work / self._wall if self._wall else 1.0
        return work / pace

    def bid(self, device: int, ticket: Ticket, weight_bytes: int) -> Offer:
        """The device of that number from the point of view of one request."""
        door = self.ledger.door
        known = (
            ticket.digest is None
            or ticket.digest in self.ledger.weights
            or ticket.digest in self.coming
            or any(key.digest == ticket.digest for key in self.lanes.busy)
        )
        return Offer(
            device,
            self.expected_seconds(),
            0.0 if known else weight_bytes / self.config.load_rate,
            door.waiting == 0
            and door.has(ticket.input_bytes)
            and door.allows(ticket.account, ticket.input_bytes),
        )

    def retry_after(self, nbytes: int) -> float:
        """Seconds until ``nbytes`` and a place should be free.

        Bytes and places come free as the work ahead is done, at the rate at which all that is
        held would be free when all of it is done. At least one request must be done first.
        """
        door = self.ledger.door
        short = max(0, door.waiting_bytes + nbytes - (door.cap - door.total))
        places = max(1, door.waiting + 1 - (door.places - door.holders))
        part = max(short / max(1, door.total), places / max(1, door.holders))
        wait = self.expected_seconds() * part
        return min(self.config.max_retry_after, max(_LEAST_RETRY, wait))
