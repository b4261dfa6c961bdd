"""Take a live torch module apart: torch.fx trace in eval mode -> graph, modules, tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import fx, nn

from swift_hapi.graph import aliasing, functions, ir
from swift_hapi.graph.ir import Graph, ModuleSpec, Node, Ref
from swift_hapi.graph.modules import spec_of
from swift_hapi.graph.tracer import fx_trace
from swift_hapi.protocol.errors import ModelInvalid

_FOREIGN = "python:"


@dataclass(frozen=True)
class Traced:
    """A model taken apart.

    :param graph: may hold operations no file can hold (``python:...`` targets, specs of None)
    :param modules: the live modules by path
    :param tensors: what ``attr`` nodes read, by name: live parameters, buffers and constants
    :param foreign: functions and methods outside the tables, by target
    :param scopes: node name -> path of the innermost module the operation belongs to
    :param fixed: holds for samples of the shape it was traced for only
    """

    graph: Graph
    modules: Mapping[str, nn.Module]
    tensors: Mapping[str, torch.Tensor]
    foreign: Mapping[str, Callable]
    scopes: Mapping[str, str]
    fixed: bool = False


def _fetch(model: nn.Module, name: str, parked: Mapping[str, object]) -> object:
    if name in parked:
        return parked[name]
    value: object = model
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _value(argument: object) -> object:
    """An fx argument as a value of ours (an unknown kind stays itself: writing it will fail)."""
    if isinstance(argument, fx.Node):
        return Ref(argument.name)
    if isinstance(argument, tuple):
        return tuple(_value(item) for item in argument)
    if isinstance(argument, list):
        return [_value(item) for item in argument]
    if isinstance(argument, slice):
        return slice(*(_value(x) for x in (argument.start, argument.stop, argument.step)))
    return argument


def _operation(node: fx.Node, foreign: dict[str, Callable]) -> tuple[str, str]:
    if node.op == "call_module":
        return ir.MODULE, str(node.target)
    if node.op == "get_attr":
        return ir.ATTR, str(node.target)
    if node.op == "placeholder":
        return ir.INPUT, ""
    if node.op == "call_method":
        if node.target in functions.METHODS:
            return ir.METHOD, node.target
        target = f"{_FOREIGN}Tensor.{node.target}"
        foreign[target] = getattr(torch.Tensor, node.target, None) or _method(node.target)
        return ir.METHOD, target
    name = functions.name_of(node.target)
    if name is None:
        call = node.target
        label = getattr(call, "__qualname__", None) or getattr(call, "__name__", repr(call))
        name = f"{_FOREIGN}{getattr(call, '__module__', '')}.{label}"
        foreign[name] = call
    return ir.FUNCTION, name


def _method(name: str) -> Callable:
    return lambda self, *args, **kwargs: getattr(self, name)(*args, **kwargs)


def _spec(module: nn.Module, path: str) -> ModuleSpec | None:
    try:
        return spec_of(module, path)
    except ModelInvalid:
        return None


def _scope(node: fx.Node) -> str:
    if node.op == "call_module":
        return str(node.target)
    stack = node.meta.get("nn_module_stack")
    return next(reversed(stack.values()))[0] if stack else ""


def trace(
    model: nn.Module,
    input_shape: tuple[int, ...] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Traced:
    """Trace ``model`` as it is in eval mode; the model itself stays as it is, also its mode.

    The first argument of ``forward`` is the input, [n, ...]; the others take their defaults.

    :param input_shape: of one sample: conditions on it are decided, where there are any

    :raises ModelInvalid: the model cannot be traced (the detail names the module), has no single
        tensor as its output, or overwrites memory that it still reads under another name
    """
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        graph, tracer = fx_trace(model, input_shape, dtype)
    finally:
        for module, mode in modes.items():
            module.training = mode

    foreign: dict[str, Callable] = {}
    nodes: list[Node] = []
    scopes: dict[str, str] = {}
    output: object = None
    for node in graph.nodes:
        if node.op == "output":
            output = _value(node.args[0])
            continue
        op, target = _operation(node, foreign)
        args = () if op == ir.INPUT else tuple(_value(arg) for arg in node.args)
        kwargs = {key: _value(arg) for key, arg in node.kwargs.items()}
        nodes.append(Node(node.name, op, target, args, kwargs))
        scopes[node.name] = _scope(node)
    if not isinstance(output, Ref):
        raise ModelInvalid(f"the output of {type(model).__name__} is not one tensor")

    live = {node.target: None for node in nodes if node.op == ir.MODULE}
    modules = {path: tracer.norms.get(path) or model.get_submodule(path) for path in live}
    specs = {path: _spec(module, path) for path, module in modules.items()}
    nodes, output, conflict = aliasing.settle_writes(tuple(nodes), specs, output.name)
    if conflict is not None:
        raise ModelInvalid(
            f"node '{conflict.name}' overwrites memory that is read later under another name"
        )
    kept = ir.slice_to(nodes, output)
    if not kept or kept[0].op != ir.INPUT:
        raise ModelInvalid(f"the output of {type(model).__name__} does not depend on its input")
    kept = (Node("input", ir.INPUT, ""), *_renamed(kept[1:], kept[0].name))
    tensors = {
        node.target: _fetch(model, node.target, tracer.parked)
        for node in kept
        if node.op == ir.ATTR
    }
    used = {node.target for node in kept if node.op == ir.MODULE}
    graph = Graph(kept, {path: spec for path, spec in specs.items() if path in used}, output)
    return Traced(
        graph,
        {path: module for path, module in modules.items() if path in used},
        tensors,
        foreign,
        scopes,
        tracer.branches is not None and tracer.branches.taken,
    )


def _renamed(nodes: tuple[Node, ...], old: str) -> tuple[Node, ...]:
    """Call the input ``input`` everywhere: that is the name of cut 0."""
    if any(node.name == "input" for node in nodes) and old != "input":
        raise ModelInvalid("a node other than the input is called 'input'")
    change = lambda ref: Ref("input") if ref.name == old else ref  # noqa: E731
    return tuple(ir.with_refs(node, change) for node in nodes)
