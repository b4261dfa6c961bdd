"""Cuts: the places of a graph where exactly one tensor is live.

What lies before a cut is a head, what lies after it a tail, and the one tensor between them is
all that has to travel. A place where a shape number is live beside the tensor is not a cut: the
number would go stale when the batch changes on the way. Indices count from 0 (the input) in
running order; names are those of the nodes that make the tensor.
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from swift_hapi.graph import ir
from swift_hapi.graph.caps import DEFAULT, UNLIMITED, Caps
from swift_hapi.graph.dryrun import DryRun, MetaModel, dry_run
from swift_hapi.graph.ir import Graph
from swift_hapi.graph.isolation_call import Place, mark_of
from swift_hapi.graph.numbers import BATCHES, check_numbers
from swift_hapi.protocol.errors import BadCut, ModelInvalid

#: of all names, and letters of each, when near ones are looked for
_LOOKED_AT, _LONG = 300, 64


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


@dataclass(frozen=True)
class Examined:
    """What two dry runs show of a graph.

    :param flops: of one sample through all of it
    """

    cuts: tuple[Cut, ...]
    flops: float


def _check_growth(small: Mapping[str, object], large: Mapping[str, object]) -> None:
    for name, value in small.items():
        if not torch.is_tensor(value):
            continue
        if not torch.is_tensor(large[name]) or (
            large[name].numel() * BATCHES[0] > value.numel() * BATCHES[1]
        ):
            raise ModelInvalid(f"node '{name}' grows faster than the batch")


def _two_runs(
    model: MetaModel, input_shape: tuple[int, ...], follow: bool, caps: Caps
) -> tuple[DryRun, DryRun]:
    def run(batch: int, other: DryRun | None = None) -> DryRun:
        shapes = other.isolation.shapes if other and follow else None
        return dry_run(model, input_shape, batch, caps=caps, follow=follow, other=shapes)

    small = run(BATCHES[0])
    large = run(BATCHES[1], small)
    _check_growth(small.values, large.values)
    if follow:
        check_numbers(model.graph, small.values, large.values)
        if large.isolation.grown:
            # Only now is it known what grows with the batch.
            small = run(BATCHES[0], large)
        ours, theirs = small.isolation, large.isolation
        if ours.trail != theirs.trail:
            raise ModelInvalid("how samples lie in a batch depends on how many they are")
        same = len(ours.squeezed) == len(theirs.squeezed)
        if not same or BATCHES in zip(ours.squeezed, theirs.squeezed, strict=True):
            raise ModelInvalid("a dimension would be squeezed out of a batch of one sample")
    return small, large


def _is_cut(small: object, large: object, dtype: torch.dtype) -> bool:
    if not (torch.is_tensor(small) and torch.is_tensor(large)):
        return False
    if small.dtype != dtype or small.dim() < 1:
        return False
    if (small.shape[0], large.shape[0]) != BATCHES:
        return False
    return small.shape[1:] == large.shape[1:]


def examine(
    model: MetaModel, input_shape: tuple[int, ...], caps: Caps = DEFAULT, *, follow: bool = True
) -> Examined:
    """All cuts, for inputs of ``input_shape`` (per sample), and what the graph costs.

    :param follow: show that samples of a batch stay apart, as they must on the storage side
    :raises ModelInvalid: the graph does not run on that shape, exceeds a limit, or may mix
        samples; or its output is no cut
    """
    first, second = _two_runs(model, input_shape, follow, caps)
    small, large = first.values, second.values
    cuts: list[Cut] = []
    smallest = math.inf
    for name in _live_alone(model.graph):
        dtype = model.dtype if name == model.graph.input else torch.float32
        if not _is_cut(small[name], large[name], dtype):
            continue
        if follow and mark_of(small[name]) != Place(0):
            continue
        shape = tuple(small[name].shape[1:])
        size = dtype.itemsize * math.prod(shape)
        kind = str(dtype).removeprefix("torch.")
        cuts.append(Cut(len(cuts), name, shape, size, size < smallest, kind))
        smallest = min(smallest, size)
    if not cuts or cuts[-1].name != model.graph.output:
        raise ModelInvalid(f"output '{model.graph.output}' is not one float32 tensor per sample")
    return Examined(tuple(cuts), first.flops / BATCHES[0])


def find_cuts(model: MetaModel, input_shape: tuple[int, ...]) -> tuple[Cut, ...]:
    """Cuts of a graph that need not go to the storage side as a whole.

    :raises ModelInvalid: the graph does not run on that shape, or its output is no cut
    """
    return examine(model, input_shape, UNLIMITED, follow=False).cuts


def reshape_cuts(
    cuts: Sequence[Cut], model: MetaModel, input_shape: tuple[int, ...], caps: Caps = DEFAULT
) -> tuple[Cut, ...]:
    """The same cuts (index and name) with shapes for another input shape.

    :raises ModelInvalid: the graph does not run on that shape, exceeds a limit there, or may mix
        samples of that shape
    """
    values = _two_runs(model, input_shape, True, caps)[0].values
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
    # Long names and many of them would take seconds.
    some = [name for name in itertools.islice(names, _LOOKED_AT) if len(name) <= _LONG]
    near = difflib.get_close_matches(split[:_LONG], some, n=5, cutoff=0.5)
    hint = near or [cut.name for cut in cuts if cut.pareto][:5]
    raise BadCut(f"no cut is called '{split[:80]}'; near: {', '.join(hint)}")
