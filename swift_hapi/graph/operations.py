"""What the names and operations of a graph may be, whatever their arguments come to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from swift_hapi.graph import functions, ir
from swift_hapi.graph.caps import MAX_HELD
from swift_hapi.graph.ir import ModuleSpec, Node, Ref
from swift_hapi.protocol.errors import ModelInvalid

NODE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)
TENSOR_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)
MAX_TENSOR_NAME = 400
KEYWORD = re.compile(r"[a-z_]{1,40}", re.ASCII)
#: keyword arguments that would write into, or create, something outside the data flow
REFUSED_KEYWORDS = frozenset({"out", "pin_memory", "requires_grad"})


def check_name(name: object, what: str) -> str:
    """A dotted tensor name or module path."""
    good = isinstance(name, str) and len(name) <= MAX_TENSOR_NAME
    if not (good and TENSOR_NAME.fullmatch(name)):
        raise ModelInvalid(f"{what} has a bad name {str(name)[:80]!r}")
    return name


def _check_writes(node: Node) -> None:
    if not node.args or not isinstance(node.args[0], Ref):
        raise ModelInvalid("works in place on something that is no earlier node")


#: functions that are random, or write into weights, unless told not to: position and harmless
#: value of the argument
_HARMLESS = {
    "functional.dropout": ("training", 2, False),
    "functional.embedding": ("max_norm", 3, None),
    "torchvision.shifted_window_attention": ("training", 12, False),
    "functional.scaled_dot_product_attention": ("dropout_p", 4, 0.0),
}


def _check_harmless(node: Node) -> None:
    if node.target in _HARMLESS:
        key, at, harmless = _HARMLESS[node.target]
        default = harmless if key == "dropout_p" else None
        value = node.kwargs.get(key, node.args[at] if len(node.args) > at else default)
        if isinstance(value, Ref) or value != harmless:
            raise ModelInvalid(f"{key} must be {harmless}: equal samples give equal features")


def check_operation(node: Node, modules: Mapping[str, ModuleSpec | None]) -> None:
    """That a node's operation is in the tables and its arguments are of a kind it may have."""
    for key in node.kwargs:
        if not KEYWORD.fullmatch(key) or (
            key in REFUSED_KEYWORDS and node.kwargs[key] is not None
        ):
            raise ModelInvalid(f"keyword '{key[:40]}' is not allowed")
    if node.op == ir.MODULE:
        spec = modules.get(node.target)
        if spec is None:
            raise ModelInvalid(f"module '{node.target}' is not one a file can hold")
        if spec.config.get("inplace") is True:
            _check_writes(node)
    elif node.op == ir.ATTR:
        check_name(node.target, "a tensor")
    elif node.op in (ir.FUNCTION, ir.METHOD):
        row = functions.row_of(node.op, node.target)
        _check_harmless(node)
        given = (*node.args, node.kwargs.get("device"))
        if (node.target == "to" or "device" in node.kwargs) and any(
            isinstance(arg, str) for arg in given
        ):
            raise ModelInvalid("a device may not be named")
        if row.writes(node.args, node.kwargs):
            _check_writes(node)
        if node.target == "getattr":
            good = len(node.args) == 2 and isinstance(node.args[0], Ref) and not node.kwargs
            good = good and isinstance(node.args[1], str)
            if not good or node.args[1] not in functions.ATTRIBUTES:
                raise ModelInvalid("getattr may only read shape, ndim, dtype or device")
    if node.op in (ir.INPUT, ir.ATTR) and (node.args or node.kwargs):
        raise ModelInvalid("takes no arguments")


def check_held(nodes: Sequence[Node]) -> None:
    """Whoever follows what is alive looks at all of it, node by node."""
    made = {node.name: at for at, node in enumerate(nodes)}
    last_use = {name: at for at, node in enumerate(nodes) for name in node.refs()}
    if sum(at - made[name] for name, at in last_use.items()) > MAX_HELD:
        raise ModelInvalid("too many values are needed for too long")
