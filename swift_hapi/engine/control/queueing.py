"""A request inside the controller, and the samples of one lane that wait for a micro-batch."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from swift_hapi.engine.control.types import LaneSpec, Part, Ticket
from swift_hapi.engine.control.waterfill import deal

if TYPE_CHECKING:
    from swift_hapi.engine.control.lanes import Lane


class Stage(Enum):
    OFFERED = auto()  # waits to be admitted; holds nothing
    ADMITTED = auto()  # holds its input bytes
    SEATING = auto()  # as before, and waits for room for its output
    QUEUED = auto()  # holds input and output bytes; samples wait or run
    COMPUTED = auto()  # all samples are done; output not sent yet
    DROPPED = auto()  # shed or expired: runs nothing more, holds its bytes until it departs
    GONE = auto()  # departed; bytes are held only while a micro-batch still uses them


@dataclass(eq=False)
class Job:
    """One request.

    ``placed`` and ``seated`` say what it holds at the two gates; ``ranges`` are its waiting
    samples as (start, count), in order; ``expected`` is its estimated service in seconds as long
    as no lane counts it.
    """

    ticket: Ticket
    stage: Stage = Stage.OFFERED
    spec: LaneSpec | None = None
    lane: Lane | None = None
    samples: int = 0
    placed: bool = False
    seated: bool = False
    input_held: int = 0
    output_bytes: int = 0
    ranges: deque = field(default_factory=deque)
    running: int = 0
    done: int = 0
    single_failures: int = 0
    since: float = 0.0
    expected: float = 0.0

    @property
    def account(self) -> str:
        return self.ticket.account

    @property
    def waiting(self) -> int:
        return sum(count for _, count in self.ranges)


class LaneQueue:
    """Waiting samples: accounts in turn, an account's requests first come, first served."""

    def __init__(self):
        self._jobs: OrderedDict[str, deque[Job]] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self.waiting = 0

    @property
    def accounts(self):
        """Accounts with waiting samples, next one first."""
        return self._jobs.keys()

    def oldest(self) -> float:
        """When the longest waiting request was queued."""
        return min(jobs[0].since for jobs in self._jobs.values())

    def push(self, job: Job) -> None:
        self._jobs.setdefault(job.account, deque()).append(job)
        self._count(job.account, job.waiting)

    def _count(self, account: str, change: int) -> None:
        self._counts[account] += change
        self.waiting += change

    def take(self, size: int) -> list[tuple[Job, Part]]:
        """Up to ``size`` samples: equal numbers for all accounts that have as many, and the odd
        ones in rotation, so an account's backlog delays nobody else."""
        accounts = list(self._jobs)
        shares, odd = deal(size, [self._counts[account] for account in accounts])
        taken = []
        for account, share in zip(accounts, shares, strict=True):
            if share:
                self._take_from(account, share, taken)
        for place in odd:
            if accounts[place] in self._jobs:
                self._jobs.move_to_end(accounts[place])
        return taken

    def _take_from(self, account: str, share: int, taken: list) -> None:
        jobs = self._jobs[account]
        self._count(account, -share)
        while share:
            job = jobs[0]
            start, count = job.ranges.popleft()
            used = min(share, count)
            if used < count:
                job.ranges.appendleft((start + used, count - used))
            elif not job.ranges:
                jobs.popleft()
            taken.append((job, Part(job.ticket.id, start, used)))
            share -= used
        if not jobs:
            del self._jobs[account]
            del self._counts[account]

    def put_back(self, taken: list[tuple[Job, Part]]) -> None:
        """Undo :meth:`take` for these samples: they are the next ones of their requests."""
        for job, part in reversed(taken):
            jobs = self._jobs.setdefault(job.account, deque())
            if not job.ranges:
                jobs.appendleft(job)
            job.ranges = deque(sorted([(part.start, part.count), *job.ranges]))
            self._count(job.account, part.count)

    def remove(self, job: Job) -> int:
        """Forget the waiting samples of ``job``; returns how many there were."""
        count = job.waiting
        if not count:
            return 0
        job.ranges.clear()
        jobs = self._jobs[job.account]
        jobs.remove(job)
        self._count(job.account, -count)
        if not jobs:
            del self._jobs[job.account]
            del self._counts[job.account]
        return count
