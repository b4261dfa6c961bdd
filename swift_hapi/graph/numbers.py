"""Plain numbers in a graph: they may be proportional to the batch size, or not depend on it.

Whoever has the batch size as a number could do one thing for small batches and another for large
ones (``x[: n // 3]``). Then a check on two batch sizes would prove nothing for a third. So numbers
that grow with the batch may be multiplied, divided without remainder, and used as sizes, and
nothing else: all shapes are then proportional to the batch or independent of it, for every batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from swift_hapi.graph import ir
from swift_hapi.graph.ir import Graph, Node
from swift_hapi.protocol.errors import ModelInvalid

#: two batch sizes without a common divisor: what divides at both divides always
BATCHES = (2, 3)

_READ = frozenset({"getattr", "operator.getitem", "size", "dim", "numel"})
_EXACT = frozenset({"operator.floordiv", "math.floor", "math.ceil"})
_SCALED = _EXACT | {"operator.mul", "operator.truediv"}
#: what takes sizes, and only sizes, as numbers
_SIZED = frozenset(
    {
        *("torch.reshape", "torch.unflatten", "torch.broadcast_to", "torch.zeros", "torch.ones"),
        *("reshape", "view", "expand", "unflatten", "repeat"),
    }
)


def _numbers(value: object):
    """Numbers in a value, in order; tensors count for nothing."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _numbers(item)


def _proportional(small: object, large: object) -> bool:
    """Every number is either equal or as the batch sizes are."""
    ours, theirs = list(_numbers(small)), list(_numbers(large))
    return len(ours) == len(theirs) and all(
        a == b or _equal(a * BATCHES[1], b * BATCHES[0]) for a, b in zip(ours, theirs, strict=True)
    )


def _equal(a: float, b: float) -> bool:
    # Quotients carry rounding errors; whether they are whole is checked where they are rounded.
    return a == b if isinstance(a, int) and isinstance(b, int) else math.isclose(a, b)


def _divides(node: Node, values: Mapping[str, object]) -> bool:
    """Whether the node's division leaves no remainder."""
    args = [_value(arg, values) for arg in node.args]
    if node.target == "operator.floordiv":
        return len(args) == 2 and args[1] != 0 and args[0] % args[1] == 0
    return float(args[0]).is_integer()


def check_numbers(graph: Graph, small: Mapping[str, object], large: Mapping[str, object]) -> None:
    """
    :param small, large: values of all nodes for the batch sizes :data:`BATCHES`
    :raises ModelInvalid: naming the node whose number depends on the batch in another way
    """
    varying: set[str] = set()
    for node in graph.nodes:
        one, other = small[node.name], large[node.name]
        number = not torch.is_tensor(one) and next(_numbers(one), None) is not None
        if any(name in varying for name in node.refs()):
            good = _scales(node, varying, small, large) if number else _takes_sizes(node, one)
        else:
            good = True
        if not good or (number and not _proportional(one, other)):
            raise ModelInvalid(
                f"node '{node.name}' depends on the batch size other than in proportion: samples "
                "of different requests would not be independent"
            )
        if number and list(_numbers(one)) != list(_numbers(other)):
            varying.add(node.name)


def _takes_sizes(node: Node, value: object) -> bool:
    return node.op != ir.MODULE and torch.is_tensor(value) and node.target in _SIZED


def _scales(
    node: Node, varying: set[str], small: Mapping[str, object], large: Mapping[str, object]
) -> bool:
    """Whether the node makes a number that grows with the batch from one that does."""
    if node.target in _READ:
        others = (*node.args[1:], *node.kwargs.values())
        return not any(name in varying for other in others for name in ir.refs_in(other))
    if node.kwargs:
        return False
    if node.target == "operator.add":
        # Shapes are put together.
        return all(isinstance(_value(arg, small), tuple) for arg in node.args)
    if node.target in _EXACT:
        return _divides(node, small) and _divides(node, large)
    return node.target in _SCALED


def _value(arg: object, values: Mapping[str, object]) -> object:
    return values[arg.name] if isinstance(arg, ir.Ref) else arg
