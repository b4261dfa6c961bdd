"""How much memory a head needs: what is alive (``liveness.py``), and what two real runs add.

The runs return all free memory before every node (``measure.py``), as the engine does when it is
short of memory (``heap.py``): what they take is what is alive, times a factor near 1 for kernels'
scratch that grows with the batch, and some megabytes for scratch that does not. Such runs repeat
to a percent, whatever the allocator; ordinary ones depend on how the heap's gaps happen to fit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.liveness import LiveProfile, live_profile
from swift_hapi.protocol.errors import HapiError

MB = 10**6
#: batches of the two runs
CALIBRATED_AT = (4, 16)
#: runs differ by so much
_MARGIN, _MARGIN_BYTES = 1.03, 2 * MB
#: Least scratch: kernels of small batches need what those of larger ones may not.
_LEAST_ONCE = 20 * MB
_LEAST_TIMES, _MOST_TIMES = 1.0, 8.0


class CalibrationFailed(HapiError):
    """The measuring process failed, or took too long."""

    name = "calibration-failed"


@dataclass(frozen=True)
class HeadMemory:
    """Bytes that one head takes: ``once``, and ``per_sample``; ``steps``: what each node in turn
    makes, per sample, before the factor ``times``."""

    once: int
    per_sample: int
    steps: tuple[int, ...]
    times: float = 1.0

    def needs(self, batch: int) -> int:
        return self.once + batch * self.per_sample

    def grows(self, at: int, batch: int) -> int:
        """Bytes that node ``at`` may take more than is held before it."""
        return self.once + int(batch * self.times * self.steps[at]) + batch


@dataclass(frozen=True)
class MemoryModel:
    """
    :param once: bytes of scratch whatever the batch
    :param times: factor on what is alive
    """

    once: float
    times: float

    def __post_init__(self):
        if not (0 <= self.once < 1e12 and 0 < self.times < 100):
            raise ValueError(f"no memory model: once={self.once}, times={self.times}")

    def of(self, profile: LiveProfile) -> HeadMemory:
        per_sample = int(self.times * profile.peak) + 1
        return HeadMemory(int(self.once), per_sample, profile.steps, self.times)


#: from above, for what has not been measured
UNMEASURED = MemoryModel(24 * MB, 1.4)


def peak_bytes(
    extractor: Extractor, cut: Cut, batch: int, input_shape: tuple[int, ...] | None = None
) -> int:
    """Largest sum of live bytes while the head up to ``cut`` runs ``batch`` samples of
    ``input_shape``; input and output included, weights not.

    :raises ModelInvalid: the extractor does not run on that input shape
    """
    return batch * live_profile(extractor, cut, input_shape).peak


def per_sample_bytes(
    extractor: Extractor, cut: Cut, input_shape: tuple[int, ...] | None = None
) -> int:
    """By how much :func:`peak_bytes` grows with every sample."""
    return live_profile(extractor, cut, input_shape).peak


def fit(per_sample: int, measured: Mapping[int, int]) -> MemoryModel:
    """The model that two measurements speak for, raised by a margin.

    :param per_sample: bytes alive per sample
    :param measured: peaks by batch
    """
    few, many = min(measured), max(measured)
    times = (measured[many] - measured[few]) / ((many - few) * per_sample)
    times = min(_MOST_TIMES, max(_LEAST_TIMES, times))
    once = max(peak - times * batch * per_sample for batch, peak in measured.items())
    return MemoryModel(_MARGIN * max(_LEAST_ONCE, once) + _MARGIN_BYTES, _MARGIN * times)


def measure_command(
    path: str | Path, batches: Sequence[int], threads: int, *, nice: int = 0
) -> list[str]:
    """How to run ``measure.py``; what it prints is for :func:`read_measurement`."""
    command = [sys.executable, "-m", "swift_hapi.graph.measure", str(path)]
    command += ["--batches", ",".join(map(str, batches)), "--threads", str(threads)]
    return [*command, "--nice", str(nice)]


def read_measurement(printed: str | bytes) -> dict[int, int]:
    """Peaks in bytes by batch.

    :raises CalibrationFailed: it is not what ``measure.py`` prints
    """
    try:
        return {int(batch): int(run["peak"]) for batch, run in json.loads(printed).items()}
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise CalibrationFailed(f"the measuring process said {printed[:80]!r}") from error


def calibrate(
    path: str | Path,
    extractor: Extractor,
    *,
    batches: Sequence[int] = CALIBRATED_AT,
    threads: int = 1,
    timeout: float = 600,
) -> MemoryModel:
    """Measure the whole extractor in a process of its own, and fit.

    :param path: its file; ``extractor`` itself may be without weights
    :raises CalibrationFailed: the process fails or takes longer than ``timeout`` seconds
    """
    command = measure_command(path, batches, threads)
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise CalibrationFailed(f"memory of {path} could not be measured: {error}") from error
    return fit(per_sample_bytes(extractor, extractor.cuts[-1]), read_measurement(done.stdout))
