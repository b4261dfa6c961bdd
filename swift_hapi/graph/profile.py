"""How the time of a head spreads over the cuts, measured on this machine."""

from __future__ import annotations

import time
from itertools import pairwise

import torch

from swift_hapi.graph import ir
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.program import Program

_SEED = 1


def example_batch(
    extractor: Extractor, batch: int, input_shape: tuple[int, ...] | None = None
) -> torch.Tensor:
    """Samples that are good for timing: no value that makes arithmetic unusually fast or slow."""
    shape = (batch, *(input_shape or extractor.input_shape))
    generator = torch.Generator().manual_seed(_SEED)
    if extractor.dtype == torch.int64:
        return torch.zeros(shape, dtype=torch.int64)
    x = torch.rand(shape, generator=generator)
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def head_seconds(
    extractor: Extractor,
    batch: int = 8,
    repeats: int = 3,
    input_shape: tuple[int, ...] | None = None,
) -> dict[str, float]:
    """Seconds per sample from the input to each cut, by cut name, with torch's threads as set.

    The network is run piece by piece from cut to cut; of each piece the fastest of ``repeats``
    counts, after one run that does not.
    """
    pieces = []
    for before, after in pairwise(extractor.cuts):
        needed = ir.slice_to(extractor.graph.nodes, after.name, stop=before.name)
        nodes = [node for node in needed if node.name in extractor.dependent]
        pieces.append(
            Program(nodes, before.name, after.name, extractor.resolver, extractor.known)
        )
    best = [float("inf")] * len(pieces)
    x = example_batch(extractor, batch, input_shape)
    with torch.inference_mode():
        for repeat in range(repeats + 1):
            value = x.clone()
            for i, piece in enumerate(pieces):
                started = time.perf_counter()
                value = piece(value)
                if repeat:
                    best[i] = min(best[i], time.perf_counter() - started)
    total, seconds = 0.0, {extractor.cuts[0].name: 0.0}
    for cut, own in zip(extractor.cuts[1:], best, strict=True):
        total += own / batch
        seconds[cut.name] = total
    return seconds
