"""Which candidate to run: predictions, corrected by what runs, compared with patience.

A candidate's estimate is the cost model's time under the present corrections, times what its own
measurement was off the model by (of one never measured: times what the others were off). So a
change of bandwidth or load moves every estimate at once, also of those that do not run.

No clock and no I/O: the same observations give the same decisions.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hapi_compute.plan.candidates import RAW
from hapi_compute.plan.costs import Correction, Demand, Setting, Stages, stages

#: how much faster another candidate must be before it is worth a move
MARGIN = 0.03
#: how far the model may be off for a candidate that has never run: such are tried
DOUBT = 0.15
_LEAST_DOUBT = 0.06
#: candidates tried out before conditions change
TRIALS = 4
#: conditions have changed when the model's time of what was measured moved by this factor
_CHANGED = 1.3
#: weights of a new measurement against the old value, in logarithms: within noise, and beyond
_WEIGHT, _WEIGHT_OF_CHANGE = 0.5, 0.95


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
    """:param measured: the time rests on a measurement of this candidate
    :param doubt: the true time may be this part lower
    """

    name: str
    stages: Stages
    time: float
    measured: bool
    doubt: float


@dataclass(frozen=True)
class Decision:
    """:param trial: to learn about it, not because it is known to be better"""

    name: str
    runner_up: str | None
    reason: str
    trial: bool = False


@dataclass
class _Record:
    """A measured time and the model's for the same conditions; ``leaves`` moves away from it."""

    time: float
    model: float


class Chooser:
    """:param demands: by candidate, in order; predictions before any correction
    :param bandwidth: bytes per second
    :param margin, doubt, trials: see the constants of this module
    :raises ValueError: no candidates
    """

    def __init__(
        self,
        demands: Mapping[str, Demand],
        setting: Setting,
        bandwidth: float,
        *,
        margin: float = MARGIN,
        doubt: float = DOUBT,
        trials: int = TRIALS,
    ):
        if not demands:
            raise ValueError("there are no candidates to choose from")
        self.demands = dict(demands)
        self.setting = setting
        self.bandwidth = bandwidth
        self.correction = Correction()
        self._margin = margin
        self._doubt = doubt
        self._trials = self._trials_left = trials
        self._records: dict[str, _Record] = {}
        self._returns: dict[str, int] = {}
        self._out: set[str] = set()
        self.current = self._best(self.estimates()).name

    def demand(self, name: str) -> Demand:
        """As corrected by now."""
        demand = self.demands[name]
        if name == RAW:
            return replace(self.correction, storage=1.0).apply(demand)
        return self.correction.apply(demand)

    def stages(self, name: str) -> Stages:
        return stages(self.demand(name), self.setting, self.bandwidth)

    def estimates(self) -> dict[str, Estimate]:
        """Of all candidates that are not ruled out, under present conditions."""
        ratios = [math.log(record.time / record.model) for record in self._records.values()]
        usual = math.exp(statistics.median(ratios)) if ratios else 1.0
        doubt = self._doubt
        if len(ratios) >= 3:
            doubt = min(doubt, max(_LEAST_DOUBT, 2 * statistics.stdev(ratios)))
        found = {}
        for name in self.demands:
            if name in self._out:
                continue
            at = self.stages(name)
            record = self._records.get(name)
            if record is None:
                # A model that is off by much for one says little about the others.
                factor = min(max(usual, 0.8), 1.25)
                found[name] = Estimate(name, at, at.time * factor, False, doubt)
            else:
                changed = not 1 / _CHANGED < at.time / record.model < _CHANGED
                found[name] = Estimate(
                    name, at, at.time * record.time / record.model, True, doubt if changed else 0.0
                )
        return found

    def rule_out(self, name: str) -> None:
        """Never choose this one again: it does not work."""
        if len(self._out) + 1 < len(self.demands):
            self._out.add(name)

    def observe(self, name: str, seen: Observed) -> None:
        """Take in what a stretch of ``name`` came to."""
        before = {name: self.stages(name).time for name in self._records}
        plain, now = self.demands[name], self.correction
        if seen.bandwidth is not None:
            self.bandwidth = _towards(self.bandwidth, seen.bandwidth)
        changes = {}
        for part in ("storage", "compute", "receive", "decode"):
            value, base = getattr(seen, part), getattr(plain, part)
            if part == "storage" and name == RAW:
                continue
            if value is not None and value > 0 and base > 0:
                changes[part] = _towards(getattr(now, part), value / base)
        self.correction = replace(now, **changes)
        if seen.client is not None:
            slowdown = max(1.0, seen.client / self.stages(name).client * self.correction.client)
            self.correction = replace(
                self.correction, client=_towards(self.correction.client, slowdown)
            )
        if seen.time is not None:
            model, old = self.stages(name).time, self._records.get(name)
            time = seen.time
            if old is not None:
                time = _towards(model * old.time / old.model, time)
            self._records[name] = _Record(time, model)
        if any(not 1 / _CHANGED < self.stages(n).time / t < _CHANGED for n, t in before.items()):
            self._trials_left = self._trials
            self._returns.clear()

    def decide(self) -> Decision:
        """Stay or move; moving makes the chosen one :attr:`current`."""
        found = self.estimates()
        best = self._best(found)
        runner_up = self._best({n: e for n, e in found.items() if n != best.name})
        here = found.get(self.current)
        if here is None:
            return self._move(best, runner_up, f"{self.current} does not work")
        if not here.measured:
            return self._stay(best, found, "not measured yet")
        if best.name != here.name:
            gain = 1 - best.time / here.time
            # Coming back to what was left before must be worth more each time.
            needed = self._margin * 2 ** self._returns.get(best.name, 0)
            if best.name == RAW and here.time > best.time and not self._returns.get(RAW):
                needed = 0.0  # A push-down that is slower than none is never kept.
            if gain > needed:
                why = f"{_ms(best.time)} per iteration instead of {_ms(here.time)}"
                return self._move(best, runner_up, why)
        return self._try_out(here, found) or self._stay(here, found, f"{_ms(here.time)} measured")

    def _try_out(self, here: Estimate, found: dict[str, Estimate]) -> Decision | None:
        """A candidate that may be faster than what runs, for all that is known."""
        hopeful = [
            each
            for each in found.values()
            if each.name != here.name
            and each.doubt > 0
            and each.time * (1 - each.doubt) < here.time * (1 - self._margin)
        ]
        if not hopeful or self._trials_left == 0:
            return None
        self._trials_left -= 1
        chosen = min(hopeful, key=lambda each: each.time * (1 - each.doubt))
        self._records.pop(chosen.name, None)
        why = f"tried: {_ms(chosen.time)} predicted, {_ms(here.time)} measured for {here.name}"
        return self._move(chosen, here, why, trial=True)

    def _move(self, to: Estimate, runner_up, reason: str, trial: bool = False) -> Decision:
        if to.measured:
            self._returns[to.name] = self._returns.get(to.name, 0) + 1
        self.current = to.name
        return Decision(to.name, runner_up.name if runner_up else None, reason, trial)

    def _stay(self, at: Estimate, found: dict[str, Estimate], reason: str) -> Decision:
        other = self._best({n: e for n, e in found.items() if n != self.current})
        return Decision(self.current, other.name if other else None, reason)

    @staticmethod
    def _best(found: Mapping[str, Estimate]) -> Estimate | None:
        # Of equals the first: raw, then the earliest cut.
        return min(found.values(), key=lambda each: each.time, default=None)


def _towards(old: float, new: float) -> float:
    """Between the two; close to ``new`` where it is no longer noise that parts them."""
    weight = _WEIGHT if 1 / _CHANGED < new / old < _CHANGED else _WEIGHT_OF_CHANGE
    return math.exp((1 - weight) * math.log(old) + weight * math.log(new))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
