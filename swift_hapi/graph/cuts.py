"""Cuts: the places of a graph where exactly one tensor is live.

What lies before a cut is a head, what lies after it a tail, and the one tensor between them is
all that has to travel. A place where a shape number is live beside the tensor is not a cut: the
number would go stale when the batch changes on the way. Indices count from 0 (the input) in
running order; names are those of the nodes that make the tensor.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from swift_hapi.graph import ir
from swift_hapi.graph.dryrun import MetaModel, dry_run
from swift_hapi.graph.ir import Graph
from swift_hapi.protocol.errors import BadCut, ModelInvalid

#: the two batch sizes tried to tell what grows with the batch
BATCHES = (2, 3)
_MANY = 64


@dataclass(frozen=True)
class Cut:
    """
    :param shape: of one sample, without the batch dimension
    :param bytes: of one sample, in float32 (or as it is, for an input of int64)
    :param pareto: smaller than every earlier cut; only these can be worth choosing by size
    :param dtype: ``int64`` for the input of a model that takes ids, else ``float32``
    """

    index: int
    name: str
    shape: tuple[int, ...]
    bytes: int
    pareto: bool
    dtype: str = "float32"


def _live_alone(graph: Graph) -> list[str]:
    """Nodes after which no other input-dependent value is still needed."""
    dependent = ir.input_dependent(graph.nodes, graph.input)
    last_use = {name: at for at, node in enumerate(graph.nodes) for name in node.refs()}
    last_use[graph.output] = len(graph.nodes)
    alone = []
    latest = -1  # the farthest use of everything made so far
    for at, node in enumerate(graph.nodes):
        if node.name not in dependent:
            continue
        if latest <= at:
            alone.append(node.name)
        latest = max(latest, last_use.get(node.name, -1))
        if node.name == graph.output:
            break
    return alone


def _check_growth(small: Mapping[str, object], other: Mapping[str, object], batch: int) -> None:
    for name, value in small.items():
        if not torch.is_tensor(value):
            continue
        if not torch.is_tensor(other[name]) or (
            other[name].numel() * BATCHES[0] > value.numel() * batch
        ):
            raise ModelInvalid(f"node '{name}' grows faster than the batch")


def _is_cut(small: object, large: object, dtype: torch.dtype) -> bool:
    if not (torch.is_tensor(small) and torch.is_tensor(large)):
        return False
    if small.dtype != dtype or small.dim() < 1:
        return False
    if (small.shape[0], large.shape[0]) != BATCHES:
        return False
    return small.shape[1:] == large.shape[1:]


def find_cuts(model: MetaModel, input_shape: tuple[int, ...]) -> tuple[Cut, ...]:
    """All cuts, for inputs of ``input_shape`` (per sample).

    :raises ModelInvalid: the graph does not run on that shape, or its output is no cut
    """
    small, large = (dry_run(model, input_shape, batch) for batch in BATCHES)
    _check_growth(small, large, BATCHES[1])
    if any(isinstance(value, int) and value != large[name] for name, value in small.items()):
        # Somebody calculates with the batch size: see what becomes of it.
        _check_growth(small, dry_run(model, input_shape, _MANY), _MANY)
    cuts: list[Cut] = []
    smallest = math.inf
    for name in _live_alone(model.graph):
        dtype = model.dtype if name == model.graph.input else torch.float32
        if not _is_cut(small[name], large[name], dtype):
            continue
        shape = tuple(small[name].shape[1:])
        size = dtype.itemsize * math.prod(shape)
        kind = str(dtype).removeprefix("torch.")
        cuts.append(Cut(len(cuts), name, shape, size, size < smallest, kind))
        smallest = min(smallest, size)
    if not cuts or cuts[-1].name != model.graph.output:
        raise ModelInvalid(f"output '{model.graph.output}' is not one float32 tensor per sample")
    return tuple(cuts)


def reshape_cuts(
    cuts: Sequence[Cut], model: MetaModel, input_shape: tuple[int, ...]
) -> tuple[Cut, ...]:
    """The same cuts (index and name) with shapes for another input shape.

    :raises ModelInvalid: the graph does not run on that shape
    """
    values = dry_run(model, input_shape, BATCHES[0])
    changed: list[Cut] = []
    smallest = math.inf
    for cut in cuts:
        tensor = values[cut.name]
        if tensor.dim() < 1 or tensor.shape[0] != BATCHES[0]:
            raise ModelInvalid(f"cut '{cut.name}' has no batch dimension for this input")
        shape = tuple(tensor.shape[1:])
        size = tensor.dtype.itemsize * math.prod(shape)
        changed.append(replace(cut, shape=shape, bytes=size, pareto=size < smallest))
        smallest = min(smallest, size)
    return tuple(changed)


def resolve(cuts: Sequence[Cut], split: str) -> Cut:
    """The cut of that name or index.

    :raises BadCut: there is none; the detail lists near names
    """
    if split.isascii() and split.isdigit() and len(split) < 8:
        if int(split) < len(cuts):
            return cuts[int(split)]
        raise BadCut(f"cut index {split} is beyond the last, {len(cuts) - 1}")
    names: Mapping[str, Cut] = {cut.name: cut for cut in cuts}
    if split in names:
        return names[split]
    near = difflib.get_close_matches(split[:200], names, n=5, cutoff=0.5)
    hint = near or [cut.name for cut in cuts if cut.pareto][:5]
    raise BadCut(f"no cut is called '{split[:80]}'; near: {', '.join(hint)}")
