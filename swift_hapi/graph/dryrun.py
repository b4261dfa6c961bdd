"""Run a graph on meta tensors: shapes and memory of every node, without memory or arithmetic.

This is also the last gate for a file from outside: it refuses graphs whose tensors, integers or
sequences explode, that compute too much, that may mix the samples of a batch, or that write into
their own weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from swift_hapi.graph import aliasing, functions, ir
from swift_hapi.graph.caps import DEFAULT, MAX_ITEMS, MAX_SEQUENCE, Caps
from swift_hapi.graph.ir import Graph, Node
from swift_hapi.graph.isolation import Isolation
from swift_hapi.graph.isolation_call import Place, mark
from swift_hapi.graph.watch import Watch
from swift_hapi.protocol.errors import ModelInvalid

MAX_INT = 2**62
_BATCH_NORM_ARGUMENTS = ("input", "running_mean", "running_var", "weight", "bias", "training")
_TAKE_APART = frozenset({"unbind", "split", "chunk", "tensor_split"})
#: what they call their second argument, the pieces' size or number
_HOW = ("chunks", "sections", "indices", "indices_or_sections", "split_size",
        "split_size_or_sections")  # fmt: skip


@dataclass(frozen=True)
class MetaModel:
    """A graph with everything to run it on the meta device.

    :param modules: by path, on the meta device, in eval mode
    :param tensors: what ``attr`` nodes read, by tensor name, on the meta device
    :param foreign: functions outside the tables by target (only while a model is taken apart)
    :param dtype: of the input
    """

    graph: Graph
    modules: Mapping[str, nn.Module]
    tensors: Mapping[str, torch.Tensor]
    foreign: Mapping[str, object]
    dtype: torch.dtype = torch.float32


def resolver(model: MetaModel):
    """node -> callable, for modules, functions and methods."""

    def resolve(node: Node):
        if node.op == ir.MODULE:
            return model.modules[node.target]
        if node.target in model.foreign:
            return model.foreign[node.target]
        return functions.row_of(node.op, node.target).call

    return resolve


def check_writes(graph: Graph) -> None:
    """Nothing may survive a request: neither weights nor what is computed from them once and kept
    may be overwritten by what depends on the input. Else one request could read another's.

    :raises ModelInvalid: an in-place operation could do so
    """
    attrs = [node.name for node in graph.nodes if node.op == ir.ATTR]
    guilty = aliasing.overwrites(graph.nodes, graph.modules, attrs)
    if guilty is not None:
        raise ModelInvalid(f"node '{guilty.name}' writes into the model's own weights")
    dependent = ir.input_dependent(graph.nodes, graph.input)
    kept = [node.name for node in graph.nodes if node.name not in dependent]
    shared = aliasing.aliases(graph.nodes, graph.modules, kept)
    for node in graph.nodes:
        if node.name in dependent and aliasing.written_to(node, graph.modules) in shared:
            raise ModelInvalid(f"node '{node.name}' writes into a constant of the model")


def _check_batch_statistics(node: Node, dependent: set[str]) -> None:
    """Batch norm in training mode is harmless on weights (weight standardisation). On activations
    it would make a sample's features depend on its neighbours, and running statistics would
    change from call to call."""
    if node.target != "functional.batch_norm":
        return
    given = dict(zip(_BATCH_NORM_ARGUMENTS, node.args, strict=False)) | dict(node.kwargs)
    if given.get("training", False) is False:
        return
    statistics = given.get("running_mean") is not None or given.get("running_var") is not None
    if statistics or any(name in dependent for name in node.refs()):
        raise ModelInvalid(f"node '{node.name}' uses batch statistics: samples would mix")


def _check_arguments(node: Node, args: tuple, kwargs: Mapping[str, object]) -> None:
    """Python's own operators can eat memory (``[0] * 10**9``, ``10**10**9``): only numbers,
    tensors and short tuples reach them."""
    if node.target in ("operator.getitem", "getattr"):
        return
    if node.op == ir.FUNCTION and node.target.startswith(("operator.", "math.")):
        tuples = [arg for arg in args if isinstance(arg, (tuple, list, str))]
        if tuples and (node.target != "operator.add" or any(len(t) > 64 for t in tuples)):
            raise ModelInvalid(f"node '{node.name}': arithmetic on a sequence")
        if node.target == "operator.pow" and not any(map(torch.is_tensor, args)):
            raise ModelInvalid(f"node '{node.name}': powers of plain numbers")
    kind = node.target.rpartition(".")[2]
    if kind in _TAKE_APART and _pieces(kind, args, kwargs) > MAX_SEQUENCE:
        raise ModelInvalid(f"node '{node.name}' takes a tensor into too many pieces")


def _pieces(kind: str, args: tuple, kwargs: Mapping[str, object]) -> int:
    """Into how many pieces a tensor is taken, or more: the length of its longest dimension, where
    the call is written in an unusual way."""
    tensors = [arg for arg in (*args, *kwargs.values()) if torch.is_tensor(arg)]
    longest = max((max(tensor.shape, default=0) for tensor in tensors), default=0)
    names = ("dim",) if kind == "unbind" else ("how", "dim")
    given = dict(zip(names, args[1:], strict=False))
    given |= {"how" if key in _HOW else key: value for key, value in kwargs.items()}
    if len(tensors) != 1 or not args or args[0] is not tensors[0] or set(given) - set(names):
        return longest
    shape, how, dim = args[0].shape, given.get("how"), given.get("dim", 0)
    if not isinstance(dim, int) or not -len(shape) <= dim < len(shape):
        return longest
    if isinstance(how, (tuple, list)):
        return len(how) + 1
    if not isinstance(how, int) or how < 1:
        return shape[dim]
    return -(-shape[dim] // how) if kind == "split" else how


def _check_result(node: Node, value: object) -> int:
    """:returns: how many items the value has, if it is a sequence"""
    items = 0
    if isinstance(value, int):
        if abs(value) > MAX_INT:
            raise ModelInvalid(f"node '{node.name}' makes a huge integer")
    elif isinstance(value, (tuple, list)):
        if len(value) > MAX_SEQUENCE:
            raise ModelInvalid(f"node '{node.name}' makes a huge sequence")
        items = len(value) + sum(_check_result(node, item) for item in value)
    return items


@dataclass(frozen=True)
class DryRun:
    """What a run on meta tensors shows.

    :param values: of all nodes
    :param flops: of the whole batch
    :param isolation: what was found by following the samples, if they were
    """

    values: dict[str, object]
    flops: float
    isolation: Isolation | None


def _mark_weights(model: MetaModel) -> None:
    for module in model.modules.values():
        for tensor in (*module.parameters(), *module.buffers()):
            mark(tensor, None)
    for tensor in model.tensors.values():
        mark(tensor, None)


def dry_run(
    model: MetaModel,
    input_shape: tuple[int, ...],
    batch: int,
    *,
    caps: Caps = DEFAULT,
    follow: bool = False,
    other: Sequence[tuple[int, ...]] | None = None,
    on_node=None,
) -> DryRun:
    """Run all nodes on the meta device, channels_last where the input is an image.

    :param input_shape: per sample, without the batch dimension
    :param follow: also show that samples stay apart
    :param other: shapes that :class:`Isolation` has seen with another batch size
    :param on_node: called with (node, value) as soon as a node has run
    :raises ModelInvalid: naming the node that fails or exceeds a limit
    """
    x = torch.empty((batch, *input_shape), dtype=model.dtype, device="meta")
    if x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    isolation = None
    if follow:
        isolation = Isolation(batch, other)
        _mark_weights(model)
        mark(x, Place(0))
    watch = Watch(batch, caps, isolation)
    resolve = resolver(model)
    values: dict[str, object] = {}
    dependent = ir.input_dependent(model.graph.nodes, model.graph.input)
    items = 0
    # Functions that make a tensor without saying where must not make it in real memory.
    with torch.no_grad(), torch.device("meta"), watch:
        for node in model.graph.nodes:
            watch.constant = node.name not in dependent
            if node.op == ir.INPUT:
                value = x
            elif node.op == ir.ATTR:
                value = model.tensors[node.target]
            else:
                _check_batch_statistics(node, dependent)
                lookup = lambda ref: values[ref.name]  # noqa: E731
                args = ir.map_refs(node.args, lookup)
                kwargs = {key: ir.map_refs(arg, lookup) for key, arg in node.kwargs.items()}
                _check_arguments(node, args, kwargs)
                watch.next_node()
                try:
                    watch.check_time()
                    value = resolve(node)(*args, **kwargs)
                except ModelInvalid as error:
                    raise ModelInvalid(f"node '{node.name}': {error.detail}") from error
                except Exception as error:
                    raise ModelInvalid(
                        f"node '{node.name}' does not run on input "
                        f"{'x'.join(map(str, input_shape))}: {str(error)[:200]}"
                    ) from error
            items += _check_result(node, value)
            if items > MAX_ITEMS:
                raise ModelInvalid(f"node '{node.name}': sequences have too many items in all")
            values[node.name] = value
            if on_node is not None:
                on_node(node, value)
    return DryRun(values, watch.flops, isolation)
