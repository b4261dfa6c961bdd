"""Where a feature request's time went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

#: Stages of a feature request, in the order of ``Server-Timing``.
STAGES = ("queue", "read", "decode", "infer", "encode")


@dataclass
class Spent:
    """Seconds by stage, CPU seconds in all, and the sizes of the micro-batches it had part in.

    ``queue``: waiting for the model, for admission, for memory and for the first micro-batch;
    ``read``: receiving the object; ``decode``: summed over threads; ``infer``: the request's
    part, by samples, of the time its micro-batches were in the network; ``encode``: payload,
    content coding and digest. Decoding and inference overlap, so the stages may add up to more
    than the whole.

    :param charge: takes CPU seconds as they are used up, whatever becomes of the request
    """

    queue: float = 0.0
    read: float = 0.0
    decode: float = 0.0
    infer: float = 0.0
    encode: float = 0.0
    cpu: float = 0.0
    batches: list[int] = field(default_factory=list)
    charge: Callable[[float], object] = lambda seconds: None

    def use(self, cpu: float) -> None:
        """CPU seconds have been used up."""
        self.cpu += cpu
        self.charge(cpu)

    def seconds(self) -> dict[str, float]:
        return {stage: getattr(self, stage) for stage in STAGES}

    def server_timing(self) -> str:
        """Value of ``Server-Timing``, in milliseconds."""
        return ", ".join(f"{k};dur={v * 1000:.3f}" for k, v in self.seconds().items())
