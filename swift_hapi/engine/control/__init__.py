"""The engine's controller: who runs when, with how much memory. Pure logic.

No torch, no asyncio, no threads and no clock: every call that depends on time takes ``now``
(seconds of any monotonic clock). The engine drives a :class:`Controller` with real work,
``benchmarks.controller_sim`` drives the same object with made-up work.
"""

from swift_hapi.engine.control.controller import Controller
from swift_hapi.engine.control.types import (
    Answer,
    Batch,
    ControlConfig,
    DeviceSpec,
    Event,
    LaneKey,
    LaneSpec,
    Part,
    Pause,
    Ticket,
    Verdict,
    What,
)

__all__ = [
    "Answer",
    "Batch",
    "ControlConfig",
    "Controller",
    "DeviceSpec",
    "Event",
    "LaneKey",
    "LaneSpec",
    "Part",
    "Pause",
    "Ticket",
    "Verdict",
    "What",
]
