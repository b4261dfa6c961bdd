"""A lane as the driver sees it; the controller knows it by its key and spec."""

from __future__ import annotations

from swift_hapi.engine.control import LaneKey, LaneSpec
from swift_hapi.engine.model_files import ModelFile
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.memory import HeadMemory


class Lane:
    """What the driver needs to run a lane's micro-batches: ``cut`` is None where nothing is to
    be run but decoding; ``padded`` rows are run in any case; the network takes ``memory``."""

    def __init__(
        self,
        spec: LaneSpec,
        file: ModelFile,
        cut: Cut | None,
        padded: int = 0,
        memory: HeadMemory | None = None,
    ):
        self.spec = spec
        self.memory = memory
        self.file = file
        self.cut = cut
        self.padded = padded

    @property
    def key(self) -> LaneKey:
        return self.spec.key
