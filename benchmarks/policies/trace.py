"""Made-up tenants: who asks for what, and when. Everything follows from the seed.

Sizes are those of the real networks at 224 x 224, float32. Bytes per sample in the network:
resnet50 and vgg11 as measured in a process of its own, the others by the same memory model (what
is alive at the widest node, and a convolution's output twice). Weights are those of the part
before the cut. Times are measured milliseconds per sample on one CPU core, divided by 200 for a
large accelerator: only their ratios matter here.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

GB = 1 << 30
SPEED_UP = 200
OVERHEAD = 0.02  # seconds per micro-batch, however small
LOAD_RATE = 10e9  # bytes of weights a second
WORKSPACE = 256 << 20
DECODED = 602_112
LEAST_BATCH = 25  # the paper's lower bound


@dataclass(frozen=True)
class Model:
    """``cpu_ms`` per sample; all sizes in bytes, all but ``weights`` per sample."""

    name: str
    cut: str
    weights: int
    activation: int
    output: int
    cpu_ms: float

    @property
    def sample_seconds(self) -> float:
        return self.cpu_ms / 1000 / SPEED_UP

    @property
    def sample_bytes(self) -> int:
        return self.activation + DECODED


MODELS = (
    Model("alexnet", "features_12", 9_900_000, 2_150_000, 36_864, 31),
    Model("resnet18", "add_6", 44_700_000, 7_020_000, 100_352, 64),
    Model("resnet50", "avgpool", 94_000_000, 12_400_000, 8_192, 186),
    Model("vgg11", "features_20", 36_900_000, 24_700_000, 100_352, 288),
    Model("vgg19", "features_36", 80_100_000, 38_540_000, 100_352, 647),
    Model("densenet121", "transition3_pool", 19_000_000, 8_830_000, 100_352, 119),
    Model("vit_b_16", "getitem_5", 343_000_000, 5_450_000, 3_072, 660),
)


@dataclass(frozen=True)
class Request:
    """``batch`` is what the client asks for; ``digest`` is shared by tenants of one extractor."""

    id: str
    tenant: str
    at: float
    model: Model
    digest: str
    samples: int
    batch: int
    input_bytes: int

    @property
    def output_bytes(self) -> int:
        return self.samples * self.model.output

    @property
    def seconds(self) -> float:
        """Useful time on a device: no overheads."""
        return self.samples * self.model.sample_seconds

    @property
    def alone(self) -> float:
        """Time on an empty device at the batch asked for."""
        batches = -(-self.samples // self.batch)
        return self.model.weights / LOAD_RATE + batches * OVERHEAD + self.seconds


def tenants(
    count: int, each: int, *, seed: int, rate: float | None = None, private: float = 0.1
) -> list[Request]:
    """``each`` requests of ``count`` tenants, each tenant with one model and batch size.

    :param rate: tenants that arrive per second (Poisson), None for all at once
    :param private: share of tenants with an extractor of their own
    """
    random_ = random.Random(seed)
    at = 0.0
    requests = []
    for number in range(count):
        model = random_.choice(MODELS)
        own = random_.random() < private
        batch = random_.choice((128, 256, 512, 1000))
        samples = random_.choice((128, 512, 1000))
        if rate is not None:
            at += random_.expovariate(rate)
        requests += [
            Request(
                f"{number}.{i}",
                f"t{number}",
                at,
                model,
                f"{model.name}-{number}" if own else model.name,
                samples,
                batch,
                samples * 130_000,
            )
            for i in range(each)
        ]
    return requests


def equal(count: int, batch: int, model: Model) -> list[Request]:
    """Tenants that differ in nothing but their names, all at once."""
    return [
        Request(str(i), f"t{i}", 0.0, model, model.name, batch, batch, batch * 130_000)
        for i in range(count)
    ]
