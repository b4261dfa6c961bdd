"""What the compute tier needs for every cut, measured on real samples with the real code.

One pass over the frozen part stops the clock at every cut: the time from the input to each cut,
and from each cut to the end, for the price of one forward pass. Its results, the features at the
freeze point, are what training needs of these samples anyway: the caller keeps them.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
import zstandard
from torch import nn
from torch.nn import functional

from swift_hapi.graph import ir
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.packing import pack
from swift_hapi.graph.program import Program
from swift_hapi.protocol.transform import TransformSpec
from swift_hapi.samples.decode import normalised

#: the storage tier's level
_ZSTD_LEVEL = 1
#: at least so many timed passes, the first of which warms up
_PASSES = 3


@dataclass(frozen=True)
class ComputeProfile:
    """Seconds per sample on the compute tier.

    :param prefix: from the input to each cut
    :param train: trainable part: forward, loss, backward, optimiser
    :param decode: a stored sample to the network's input, CPU
    :param squeezed: for each cut, bytes with zstd as a part of bytes without, of the dtype that
        features travel as
    :param normalise: pixels that have been decoded elsewhere to the network's input, CPU
    """

    prefix: dict[str, float]
    train: float
    decode: float
    squeezed: dict[str, float] = field(default_factory=dict)
    normalise: float = 0.0

    @property
    def frozen(self) -> float:
        """The whole frozen part."""
        return max(self.prefix.values())


class PrefixTimer:
    """The frozen part, run from cut to cut.

    :param squeeze: dtype of features that are compressed on the wire; None: they are not
    :param device: where the weights of ``extractor`` are
    """

    def __init__(
        self, extractor: Extractor, squeeze: str | None = None, device: torch.device | None = None
    ):
        self._device = device or torch.device("cpu")
        self._segments: list[tuple[Cut, Program | None]] = []
        self._first = Head(extractor, extractor.cuts[0])
        self._squeeze = squeeze
        start = extractor.graph.input
        for cut in extractor.cuts:
            needed = ir.slice_to(extractor.graph.nodes, cut.name, stop=start)
            nodes = [node for node in needed if node.name in extractor.dependent]
            program = None
            if nodes:
                program = Program(nodes, start, cut.name, extractor.resolver, extractor.known)
            self._segments.append((cut, program))
            start = cut.name
        self._least: dict[str, float] = {}
        self._passes = 0
        self.squeezed: dict[str, float] = {}

    @property
    def passes(self) -> int:
        return self._passes

    def run(self, images: np.ndarray) -> np.ndarray:
        """Features at the freeze point of float32 [n, *input_shape], timed."""
        with torch.inference_mode():
            started = time.perf_counter()
            x = self._first(torch.from_numpy(images).to(self._device))
            if x.dim() == 4:
                # As a head lays its input out; the copy is part of every way to run it.
                x = x.contiguous(memory_format=torch.channels_last)
            for cut, program in self._segments:
                if program is not None:
                    x = program(x)
                    settle(self._device)
                took = (time.perf_counter() - started) / len(images)
                self._least[cut.name] = min(took, self._least.get(cut.name, took))
                if self._squeeze and cut.name not in self.squeezed:
                    self.squeezed[cut.name] = _squeezed(x[:8], self._squeeze)
                started = time.perf_counter()
            self._passes += 1
            return x.contiguous().cpu().numpy()

    def prefix(self) -> dict[str, float]:
        """Seconds per sample from the input to each cut, from the fastest run of each piece."""
        total, found = 0.0, {}
        for cut, program in self._segments:
            if program is not None:
                total += self._least[cut.name]
            found[cut.name] = total
        return found


def _squeezed(x: torch.Tensor, dtype: str) -> float:
    plain = pack(x.contiguous().cpu().numpy(), dtype)[0].rows.tobytes()
    return len(zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(plain)) / max(1, len(plain))


def settle(device: torch.device) -> None:
    """Wait until what ``device`` was told to compute is done; CPUs are when they return."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def run_batches(
    timer: PrefixTimer, images: np.ndarray, batch: int, passes: int = _PASSES
) -> np.ndarray:
    """Features of all ``images`` in batches of the real size; the first batch again until there
    are ``passes`` of them."""
    parts = [timer.run(images[i : i + batch]) for i in range(0, len(images), batch)]
    while timer.passes < passes:
        timer.run(images[:batch])
    return np.concatenate(parts)


def train_seconds(
    trainable: nn.Module,
    optimizer_of: Callable[[nn.Module], torch.optim.Optimizer],
    features: np.ndarray,
    labels: Sequence[int],
    batch: int,
    autocast: Callable[[], AbstractContextManager] = nullcontext,
) -> float:
    """Seconds per sample of one training step, on a copy of the trainable part, where that is.

    :param optimizer_of: makes the run's optimiser for a module
    :param features: at the freeze point, repeated up to a whole batch
    :param autocast: for the forward pass
    """
    rows = np.resize(np.arange(len(features)), batch)
    part = copy.deepcopy(trainable).train()
    device = next(part.parameters()).device
    x, target = (torch.from_numpy(a[rows]).to(device) for a in (features, np.asarray(labels)))
    optimizer = optimizer_of(part)
    least = float("inf")
    with torch.random.fork_rng(devices=[]):
        for _ in range(_PASSES):
            started = time.perf_counter()
            with autocast():
                outputs = part(x)
            loss = functional.cross_entropy(outputs.float(), target)
            loss.item()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            settle(device)
            least = min(least, time.perf_counter() - started)
    return least / batch


def decode_all(
    load: Callable[[int, np.ndarray], None], count: int, shape: tuple[int, ...]
) -> tuple[np.ndarray, float]:
    """All samples of a shard, and CPU seconds per sample.

    :param load: writes one sample into an array
    """
    images = np.empty((count, *shape), dtype=np.float32)
    started = time.thread_time()
    for place in range(count):
        load(place, images[place])
    return images, (time.thread_time() - started) / count


def normalise_seconds(shape: tuple[int, ...], spec: TransformSpec) -> float:
    """CPU seconds of a sample whose pixels have been decoded elsewhere.

    :param shape: [3, H, W]
    """
    pixels, out = np.zeros(shape, np.uint8), np.empty(shape, np.float32)
    least = float("inf")
    for _ in range(_PASSES):
        started = time.thread_time()
        out[...] = normalised(pixels, spec)
        least = min(least, time.thread_time() - started)
    return least


def byte_seconds(data: np.ndarray) -> float:
    """CPU seconds per byte of what every body goes through: a digest and two copies."""
    body = np.ascontiguousarray(data).view(np.uint8).reshape(-1)[: 8 << 20]
    least = float("inf")
    for _ in range(_PASSES):
        started = time.thread_time()
        hashlib.sha256(body)
        bytes(bytearray(body))
        least = min(least, time.thread_time() - started)
    return least / len(body)


def joined(arrays: Iterable[np.ndarray]) -> np.ndarray:
    found = list(arrays)
    return found[0] if len(found) == 1 else np.concatenate(found)
