"""The cuts of a model as rows: what would travel at each, and how much is computed by then."""

from __future__ import annotations

import math
from dataclasses import dataclass

from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.flops import flops_per_sample
from swift_hapi.graph.profile import head_seconds
from swift_hapi.protocol.headers import DTYPES as WIRE
from swift_hapi.protocol.wire import sample_bytes


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
    if cut.dtype == "int64":
        return {"int64": 8 * math.prod(cut.shape)}
    dtypes = [dtype for dtype in WIRE if dtype != "uint8" or cut.index == 0]
    return {dtype: sample_bytes(cut.shape, dtype) for dtype in dtypes}


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
