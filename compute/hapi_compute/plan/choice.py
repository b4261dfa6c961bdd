"""Which candidate to run: predictions, corrected by what runs, compared with patience.

A candidate's estimate is the cost model's time under the present corrections, times what its own
measurements were off the model by (of one never measured: times what the others were off). So a
change of bandwidth or load moves every estimate at once, also of those that do not run.

How far an estimate may be too high depends on what is known of the stage that decides it: of a
stage that nothing has told of yet, more. A candidate that may be faster than what runs, for all
that is known, is tried.

No clock and no I/O: the same observations give the same decisions.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hapi_compute.plan.candidates import RAW
from hapi_compute.plan.costs import Correction, Demand, Setting, Stages, stages
from hapi_compute.plan.tracking import Tracked, far

#: how much faster another candidate must be before it is worth a move
MARGIN = 0.03
_MOST_MARGIN = 0.4
#: candidates tried out before conditions change
TRIALS = 4
#: by what part a stage may take less than predicted: never observed, and observed
DOUBTS = {"storage": (0.3, 0.12), "network": (0.2, 0.1), "client": (0.12, 0.06)}
#: observations that the noise is judged by
_RECENT = 10
_PARTS = ("storage", "compute", "receive", "decode")


@dataclass(frozen=True)
class Observed:
    """What a stretch of one candidate came to; None where it does not tell.

    :param time: seconds of an iteration
    :param storage: service seconds per sample
    :param compute: CPU seconds per sample
    :param receive: CPU seconds per sample
    :param decode: CPU seconds per sample
    :param client: seconds of an iteration that the compute tier's work takes by the clock
    :param bandwidth: bytes per second
    """

    time: float | None = None
    storage: float | None = None
    compute: float | None = None
    receive: float | None = None
    decode: float | None = None
    client: float | None = None
    bandwidth: float | None = None


@dataclass(frozen=True)
class Estimate:
    """:param measured: ``time`` rests on measurements of this candidate
    :param low: what it may be at best
    """

    name: str
    stages: Stages
    time: float
    measured: bool
    low: float


@dataclass(frozen=True)
class Decision:
    """:param trial: to learn about it, not because it is known to be better"""

    name: str
    runner_up: str | None
    reason: str
    trial: bool = False


class Chooser:
    """:param demands: by candidate, in order; predictions before any correction
    :param bandwidth: bytes per second
    :param margin, trials: see the constants of this module
    :raises ValueError: no candidates
    """

    def __init__(
        self,
        demands: Mapping[str, Demand],
        setting: Setting,
        bandwidth: float,
        *,
        margin: float = MARGIN,
        trials: int = TRIALS,
    ):
        if not demands:
            raise ValueError("there are no candidates to choose from")
        self.demands = dict(demands)
        self.setting = setting
        # The profile was a measurement too: a first one that is far from it is not believed yet.
        self._bandwidth = Tracked(bandwidth, trusted=True)
        self._factors = {part: Tracked(1.0, trusted=True) for part in (*_PARTS, "client")}
        self._margin = margin
        self._trials = self._trials_left = trials
        #: measured over modelled time, by candidate
        self._ratios: dict[str, Tracked] = {}
        self._returns: dict[str, int] = {}
        self._spread: deque[float] = deque(maxlen=_RECENT)
        self.current = self._best(self.estimates()).name
        #: :attr:`current` without a trial that is not over
        self.settled = self.current

    @property
    def bandwidth(self) -> float:
        return self._bandwidth.value

    @property
    def correction(self) -> Correction:
        return Correction(**{part: factor.value for part, factor in self._factors.items()})

    @property
    def noise(self) -> float:
        """By what part two observations of the same thing differ, usually."""
        return statistics.median(self._spread) if len(self._spread) >= 2 else 0.0

    def seen(self, stage: str) -> bool:
        """Whether anything that ran has told of ``storage``, ``network`` or ``client``."""
        if stage == "network":
            return self._bandwidth.count > 0
        return self._factors["compute" if stage == "client" else stage].count > 0

    def doubts(self, stage: str) -> bool:
        """Whether the last that was told of ``storage`` or ``network`` was far off."""
        return (self._bandwidth if stage == "network" else self._factors[stage]).doubtful

    def demand(self, name: str) -> Demand:
        """As corrected by now."""
        correction = self.correction
        if name == RAW:
            correction = replace(correction, storage=1.0)
        return correction.apply(self.demands[name])

    def stages(self, name: str) -> Stages:
        return stages(self.demand(name), self.setting, self.bandwidth)

    def estimates(self) -> dict[str, Estimate]:
        """Of all candidates, under present conditions."""
        ratios = [ratio.value for ratio in self._ratios.values()]
        # A model that is off by much for one says little about the others.
        usual = min(max(statistics.median(ratios), 0.8), 1.25) if ratios else 1.0
        found = {}
        for name in self.demands:
            at = self.stages(name)
            ratio = self._ratios.get(name)
            if ratio is None:
                found[name] = Estimate(name, at, at.time * usual, False, self._low(at) * usual)
            else:
                time = at.time * ratio.value
                found[name] = Estimate(name, at, time, True, time)
        return found

    def _low(self, at: Stages) -> float:
        return max(
            getattr(at, stage) * (1 - doubts[self.seen(stage)])
            for stage, doubts in DOUBTS.items()
        )

    def observe(self, name: str, seen: Observed) -> None:
        """Take in what a stretch of ``name`` came to."""
        plain, noise = self.demands[name], self.noise
        changed = False
        if seen.bandwidth is not None:
            changed |= self._bandwidth.add(seen.bandwidth, noise)
        for part in _PARTS:
            value, base = getattr(seen, part), getattr(plain, part)
            if value is not None and value > 0 and base > 0 and (part, name) != ("storage", RAW):
                changed |= self._factors[part].add(value / base, noise)
        if seen.client is not None:
            alone = self.stages(name).client / self._factors["client"].value
            changed |= self._factors["client"].add(max(1.0, seen.client / alone), noise)
        if seen.time is not None and not (self._unsettled() and name not in self._ratios):
            # Else the time would be held against a model that is about to change.
            self._time(name, seen.time, noise)
        if changed:
            self._trials_left = self._trials
            self._returns.clear()

    def _time(self, name: str, time: float, noise: float) -> None:
        ratio = time / self.stages(name).time
        known = self._ratios.get(name)
        if known is None:
            known = self._ratios[name] = Tracked(1.0)
        elif not far(ratio / known.value, noise):
            self._spread.append(abs(math.log(ratio / known.value)))
        known.add(ratio, noise)

    def decide(self) -> Decision:
        """Stay or move; moving makes the chosen one :attr:`current`."""
        found = self.estimates()
        best, here = self._best(found), found[self.current]
        if not here.measured:
            return self._stay(found, "not measured yet")
        if self._unsettled() or self._ratios[here.name].doubtful:
            return self._stay(found, "the last measurement was far off; the next one will tell")
        if best.name != here.name and 1 - best.time / here.time > self._needed(best, here):
            why = f"{_ms(best.time)} per iteration instead of {_ms(here.time)}"
            return self._move(best, self._runner_up(found, best.name), why)
        self.settled = here.name
        return self._try_out(here, found) or self._stay(found, f"{_ms(here.time)} measured")

    def _unsettled(self) -> bool:
        return any(each.doubtful for each in (self._bandwidth, *self._factors.values()))

    def _needed(self, best: Estimate, here: Estimate) -> float:
        """The gain that is worth a move."""
        if best.name == RAW and not self._returns.get(RAW):
            return 0.0  # A push-down that is slower than none is never kept.
        # The more measurements, the less noise is left in their average.
        noise = 2 * self.noise / math.sqrt(self._ratios[here.name].count)
        # Coming back to what was left before must be worth more each time.
        margin = max(self._margin, noise) * 2 ** self._returns.get(best.name, 0)
        return min(margin, _MOST_MARGIN)

    def _try_out(self, here: Estimate, found: dict[str, Estimate]) -> Decision | None:
        """A candidate that may be faster than what runs, for all that is known."""
        limit = here.time * (1 - max(self._margin, self.noise))
        hopeful = [each for each in found.values() if not each.measured and each.low < limit]
        if not hopeful or self._trials_left == 0:
            return None
        self._trials_left -= 1
        chosen = min(hopeful, key=lambda each: each.time)
        why = f"tried: {_ms(chosen.time)} predicted, {_ms(here.time)} measured for {here.name}"
        return self._move(chosen, here.name, why, trial=True)

    def _move(
        self, to: Estimate, runner_up: str | None, reason: str, trial: bool = False
    ) -> Decision:
        if to.measured:
            self._returns[to.name] = self._returns.get(to.name, 0) + 1
        self.current = to.name
        if not trial:
            self.settled = to.name
        return Decision(to.name, runner_up, reason, trial)

    def _stay(self, found: dict[str, Estimate], reason: str) -> Decision:
        return Decision(self.current, self._runner_up(found, self.current), reason)

    def _runner_up(self, found: dict[str, Estimate], name: str) -> str | None:
        other = self._best({n: e for n, e in found.items() if n != name})
        return None if other is None else other.name

    @staticmethod
    def _best(found: Mapping[str, Estimate]) -> Estimate | None:
        # Of equals the first: raw, then the earliest cut.
        return min(found.values(), key=lambda each: each.time, default=None)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
