"""The plan of a run, as it stands and as it came about: what a report says of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hapi_compute.plan.candidates import RAW, Candidate
from hapi_compute.plan.choice import Chooser, Estimate
from hapi_compute.plan.costs import Demand, Setting, no_overlap, run_time
from hapi_compute.train.config import AUTO
from swift_hapi.graph.cuts import Cut


@dataclass(frozen=True)
class Move:
    """From ``step`` on (an iteration's number over the whole run), for ``reason``; ``predicted``
    and ``measured`` are seconds of an iteration as known at that moment."""

    step: int
    split: str
    reason: str
    trial: bool = False
    predicted: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    bandwidth: float | None = None

    def to_dict(self) -> dict:
        return dict(self.__dict__)


@dataclass
class Plan:
    """``candidate`` is what runs now; ``sizes`` candidate to bytes per sample on the wire.

    ``settled`` is the candidate to stay with as far as is known: not one that is being tried.
    ``estimates`` as of the end, ``first`` candidate to seconds of an iteration as predicted
    before anything ran. ``measured`` has, for what ran, seconds of an iteration.
    """

    candidate: Candidate
    reason: str
    sizes: dict[str, float] = field(default_factory=dict)
    runner_up: str | None = None
    settled: str | None = None
    estimates: dict[str, Estimate] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    run_times: dict[str, float] = field(default_factory=dict)
    history: list[Move] = field(default_factory=list)
    bandwidth: float | None = None
    profile: dict = field(default_factory=dict)

    @property
    def cut(self) -> Cut | None:
        return self.candidate.cut

    @property
    def split(self) -> str:
        return self.candidate.split

    @property
    def mode(self) -> str:
        return RAW if self.cut is None else "split"

    def take(self, chooser: Chooser) -> None:
        """Copy what ``chooser`` knows."""
        self.estimates = chooser.estimates()
        self.bandwidth = chooser.bandwidth
        self.settled = chooser.settled

    def to_dict(self) -> dict:
        return {
            "split": self.split,
            "candidate": self.candidate.name,
            "reason": self.reason,
            "runner_up": self.runner_up,
            "settled": self.settled or self.candidate.name,
            "bytes_per_sample": {k: round(v, 1) for k, v in self.sizes.items()},
            "bandwidth": self.bandwidth,
            "candidates": [self._row(name) for name in self.estimates],
            "history": [move.to_dict() for move in self.history],
            "profile": self.profile,
        }

    def _row(self, name: str) -> dict:
        found = self.estimates[name]
        return {
            "name": name,
            "bytes_per_sample": self.sizes.get(name),
            **{f"{stage}_s": seconds for stage, seconds in found.stages.to_dict().items()},
            "bottleneck": found.stages.bottleneck,
            "no_overlap_s": no_overlap(found.stages),
            "first_predicted_s": self.first.get(name),
            "predicted_s": found.time,
            "measured_s": self.measured.get(name),
            "run_s": self.run_times.get(name),
        }


def asked_for(
    asked: str,
    resolve: Callable[[str], Cut],
    pushdown: bool,
    candidate: Callable[[Cut], Candidate],
) -> Plan | None:
    """The plan where there is nothing to choose; None where there is.

    :param asked: ``auto``, ``raw``, or a cut's name or index
    :param resolve: name or index to a cut; raises :class:`BadCut`
    :param pushdown: whether the store runs heads at all
    :param candidate: of a cut, as features travel
    """
    if asked == RAW:
        return Plan(Candidate(None), "raw was asked for")
    wanted = None if asked == AUTO else resolve(asked)
    if not pushdown:
        return Plan(Candidate(None), "the store has no hapi filter")
    if wanted is None:
        return None
    return Plan(candidate(wanted), f"cut {wanted.name} was asked for")


def fewest_bytes(
    cuts: Sequence[Cut], raw_bytes: float | None, candidate: Callable[[Cut], Candidate]
) -> Plan:
    """The plan where nothing can be measured first: the fewest bytes per sample.

    In the paper's logs this is within 1 % of the best split for seven models at 1 Gb/s, and up to
    1.17 times slower on fast networks, where computing weighs more than sending.

    :param raw_bytes: of one sample as it lies in the store; None when not known
    :param candidate: of a cut, as features travel
    """
    found = [candidate(cut) for cut in cuts if cut.pareto]
    smallest = min(found, key=lambda each: each.bytes)
    if raw_bytes is not None and smallest.bytes >= raw_bytes:
        return Plan(
            Candidate(None),
            f"not measured; raw has {raw_bytes:,.0f} bytes per sample, no cut has fewer",
        )
    return Plan(
        smallest,
        f"not measured; cut {smallest.split} has the fewest bytes, {smallest.bytes:,} per sample",
    )


def run_times(demands: dict[str, Demand], setting: Setting, bandwidth: float) -> dict[str, float]:
    """Seconds of all epochs, for each candidate."""
    return {name: run_time(demand, setting, bandwidth) for name, demand in demands.items()}
