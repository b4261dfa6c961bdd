"""The cuts of a model as rows: what would travel at each, and how much is computed by then."""

from __future__ import annotations

import math
from dataclasses import dataclass

from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.flops import flops_per_sample
from swift_hapi.graph.profile import head_seconds

#: bytes of scale and zero point, for each range that int8 is spread over
_RANGE_BYTES = 8
WIRE = ("float32", "float16", "int8", "uint8")


@dataclass(frozen=True)
class CutRow:
    """One cut.

    :param wire: bytes of one sample by dtype on the wire, as far as the cut has them
    :param seconds: from the input to here, per sample, measured
    :param time_share: part of the whole model's time, 0 to 1
    :param flops: from the input to here, per sample
    """

    index: int
    name: str
    shape: tuple[int, ...]
    wire: dict[str, int]
    pareto: bool
    seconds: float
    time_share: float
    flops: int

    def to_dict(self) -> dict:
        return {
            "index": self.index,
            "name": self.name,
            "shape": list(self.shape),
            "bytes": self.wire,
            "pareto": self.pareto,
            "seconds": self.seconds,
            "time_share": self.time_share,
            "flops": self.flops,
        }


def wire_bytes(cut: Cut) -> dict[str, int]:
    """Bytes of one sample by dtype: int8 has a scale and a zero point per channel (per sample for
    vectors), uint8 is what pixels are before mean and std."""
    count = math.prod(cut.shape)
    if cut.dtype == "int64":
        return {"int64": 8 * count}
    ranges = cut.shape[0] if len(cut.shape) > 1 else 1
    sizes = {"float32": 4 * count, "float16": 2 * count, "int8": count + _RANGE_BYTES * ranges}
    if cut.index == 0:
        sizes["uint8"] = count
    return sizes


def cut_rows(extractor: Extractor, batch: int = 8, repeats: int = 3) -> list[CutRow]:
    """Rows of all cuts, in order; the times are measured now, with torch's threads as set."""
    seconds = head_seconds(extractor, batch, repeats)
    flops = flops_per_sample(extractor)
    whole = seconds[extractor.cuts[-1].name] or 1.0
    return [
        CutRow(
            cut.index,
            cut.name,
            cut.shape,
            wire_bytes(cut),
            cut.pareto,
            seconds[cut.name],
            seconds[cut.name] / whole,
            flops[cut.name],
        )
        for cut in extractor.cuts
    ]
