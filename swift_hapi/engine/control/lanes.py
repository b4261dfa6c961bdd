"""A lane on one device: its queue, its memory model, and what was learnt about both."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from swift_hapi.engine.control.queueing import Job, LaneQueue
from swift_hapi.engine.control.types import LaneKey, LaneSpec, Part

_BLEND = 0.3  # weight of a new measurement
#: Samples. Kernels are prepared for each size that occurs, and convolutions take up to 1.5 times
#: as long per sample where a batch is no multiple of the larger step (oneDNN, resnet50).
_STEP, _LARGE_STEP = 4, 16
_GROWTH = 1.25  # of what is possible over what is done, before a lane's batches grow
_BEARABLE = 10  # times batch_seconds that the least micro-batch may take
_DECAY = 0.95  # of learnt extra bytes, each time a shrunk lane grows


def _step_below(value: float) -> int:
    whole = max(1, int(min(value, 2.0**30)))
    for step in (_LARGE_STEP, _STEP):
        if whole >= step:
            return whole - whole % step
    return whole


def even(size: int, waiting: int) -> int:
    """Samples to take of those ``waiting``, ``size`` at most: what would make a batch odd is
    left to the next one."""
    return size if size >= waiting or size < _LARGE_STEP else size - size % _LARGE_STEP


@dataclass(frozen=True)
class Flight:
    """A micro-batch under way. ``activation_bytes`` is per sample, as believed at its start."""

    taken: list[tuple[Job, Part]]
    size: int
    activation_bytes: int
    charges: dict[str, float]


class Lane:
    """
    :param depth: micro-batches under way at once; only one of them is in the network
    :param batch_seconds: longest time that a micro-batch should take
    """

    def __init__(
        self, spec: LaneSpec, depth: int, order: int, batch_seconds: float = math.inf
    ):
        self.spec = spec
        self.depth = depth
        self.order = order
        self.queue = LaneQueue()
        self.flights: dict[int, Flight] = {}
        self.unfinished: Counter[str] = Counter()
        self.total = 0
        self.cap = spec.b_max
        self.activation_bytes = spec.activation_bytes
        self.sample_seconds = spec.sample_seconds
        self.alone = False
        self.passed = 0
        self.turn: tuple[float, int] | None = None
        self.time_cap = spec.b_max
        self._batch_seconds = math.inf if spec.padded else batch_seconds
        self._known = False  # whether a sample's time has been measured
        self._model_bytes = spec.activation_bytes
        self._full = 0

    @property
    def key(self) -> LaneKey:
        return self.spec.key

    # -- work ---------------------------------------------------------------------------------

    def add(self, account: str, samples: int) -> None:
        """Samples that are queued; a negative number for those done or dropped."""
        self.unfinished[account] += samples
        self.total += samples
        if not self.unfinished[account]:
            del self.unfinished[account]

    @property
    def limit(self) -> int:
        """Most samples of a micro-batch, as far as memory does not say less."""
        if self._batch_seconds == math.inf:
            return self.cap
        if not self._known:
            return min(self.cap, self._bearable(self.spec.most_seconds))
        least = min(self.floor, self._bearable(self.sample_seconds))
        return min(self.cap, max(least, self.time_cap))

    def _bearable(self, seconds: float) -> int:
        """Samples of so many seconds each whose time others can bear to wait."""
        return max(1, int(_BEARABLE * self._batch_seconds / max(seconds, 1e-6)))

    @property
    def floor(self) -> int:
        """Fewest samples worth a micro-batch, so memory for these must be there."""
        return min(self.spec.b_min, self.cap)

    @property
    def least(self) -> int:
        """Fewest samples that a micro-batch may have while more wait."""
        return min(self.floor, self.limit)

    # -- memory -------------------------------------------------------------------------------

    @property
    def sample_cost(self) -> int:
        """Bytes that one more sample in the micro-batch costs while ``depth`` are under way."""
        return self.activation_bytes + self.depth * self.spec.decoded_bytes

    @property
    def need(self) -> int:
        """Least bytes with which the lane can run, alone on its device."""
        return self.spec.weight_bytes + self.spec.workspace_bytes + self.floor * self.sample_cost

    @property
    def reserved(self) -> int:
        """Bytes of the micro-batches under way."""
        if not self.flights:
            return 0
        return (
            self.spec.workspace_bytes
            + self.spec.decoded_bytes * sum(f.size for f in self.flights.values())
            + self._peak
        )

    @property
    def _peak(self) -> int:
        return max((f.size * f.activation_bytes for f in self.flights.values()), default=0)

    def fit(self, free: int) -> int:
        """Largest micro-batch that can start beside those under way with ``free`` more bytes."""
        if not self.flights:
            free -= self.spec.workspace_bytes
        if free < 0:
            return 0
        decoded, activation, peak = self.spec.decoded_bytes, self.activation_bytes, self._peak
        above = (free + peak) // (decoded + activation)
        if above * activation >= peak:
            return above
        below = peak // activation
        return min(below, free // decoded) if decoded else below

    # -- learning -----------------------------------------------------------------------------

    def measured(
        self, size: int, seconds: float, peak_bytes: int | None, whole: bool = True
    ) -> None:
        """A micro-batch of ``size`` took ``seconds`` and, if known, ``peak_bytes`` in all; without
        ``whole``, it would have taken more."""
        each = max(seconds, 1e-6) / size
        if whole and not self._known and self._batch_seconds < math.inf:
            self.sample_seconds = each
            self._known = True
        elif whole or each > self.sample_seconds:
            self.sample_seconds += _BLEND * (each - self.sample_seconds)
        else:
            return
        self._limit_time(each)
        if peak_bytes is not None:
            fixed = self.spec.workspace_bytes + size * self.spec.decoded_bytes
            seen = max(1, -(-(peak_bytes - fixed) // size))
            if seen > self.activation_bytes:  # too little is dangerous, too much only slow
                self.activation_bytes = seen
            else:
                self.activation_bytes += int(_BLEND * (seen - self.activation_bytes))
            self._model_bytes = self.activation_bytes

    def _limit_time(self, latest: float) -> None:
        """In coarse steps, because kernels are prepared for each size that occurs, and only where
        the average and the latest measurement agree, because machines stutter."""
        fits = [self._batch_seconds / each for each in (self.sample_seconds, latest)]
        if max(fits) < self.time_cap:
            self.time_cap = _step_below(max(fits))
        elif min(fits) >= _GROWTH * self.time_cap:
            self.time_cap = min(self.spec.b_max, _step_below(min(fits)))

    def calibrate(self, activation_bytes: int) -> None:
        """Replace the memory model's per-sample bytes, e.g. by those of a warm-up run."""
        self.activation_bytes = self._model_bytes = max(1, activation_bytes)

    def failed(self, size: int, growth: float) -> None:
        """An allocation failed at ``size``: smaller micro-batches, and each believed dearer."""
        self.cap = max(1, min(self.cap, size // 2))
        self.activation_bytes = int(self.activation_bytes * growth) + 1
        self.alone = size == 1
        self._full = 0

    def succeeded(self, size: int, grow_after: int) -> bool:
        """Grow a shrunk lane slowly back; True when its cap changed."""
        self.alone = False
        if self.cap >= self.spec.b_max or size < self.cap:
            return False
        self._full += 1
        if self._full < grow_after:
            return False
        self._full = 0
        self.cap = min(self.spec.b_max, self.cap + max(1, self.cap // 4))
        learnt = self.activation_bytes - self._model_bytes
        self.activation_bytes = self._model_bytes + int(max(0, learnt) * _DECAY)
        return True
