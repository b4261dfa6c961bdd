"""Take a live torch module apart: torch.fx trace in eval mode -> graph, modules, tensors."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import fx, nn

from swift_hapi.graph import aliasing, functions, ir
from swift_hapi.graph.branches import Branches
from swift_hapi.graph.ir import Graph, ModuleSpec, Node, Ref
from swift_hapi.graph.modules import qualified_name, spec_of, type_of
from swift_hapi.protocol.errors import ModelInvalid

_FOREIGN = "python:"
_ADVICE = (
    ". The way through a model may depend on the shape of a sample, not on values or on the size "
    "of the batch: torch.where chooses by value"
)
#: batch norm with an activation inside: taken apart, so that its norm is an ordinary batch norm
_NORM_ACT = "timm.layers.norm_act.BatchNormAct2d"


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


class Tracer(fx.Tracer):
    """
    ``norms``: batch norms taken out of modules that are more, by path; ``parked``: constants that
    the graph reads as attributes of the model, by name; ``constants``: values of forward's
    arguments after the first.
    """

    def __init__(self, branches: Branches | None):
        super().__init__(param_shapes_constant=True)
        self.branches = branches
        self.constants: dict[str, object] = {}
        self.place: list[str] = []
        self.norms: dict[str, nn.BatchNorm2d] = {}
        self.parked: dict[str, object] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type_of(m) is not None or super().is_leaf_module(m, module_qualified_name)

    def to_bool(self, obj: fx.Proxy) -> bool:
        answer = None if self.branches is None else self.branches.decide(obj.node)
        return super().to_bool(obj) if answer is None else answer

    def iter(self, obj: fx.Proxy):
        try:
            return super().iter(obj)
        except fx.proxy.TraceError:
            length = None if self.branches is None else self.branches.length(obj.node)
            if length is None:
                raise
            return iter([obj[i] for i in range(length)])

    def call_module(self, m: nn.Module, forward, args, kwargs):
        if self.branches is not None and self.branches.running:
            return forward(*args, **kwargs)
        path = self.path_of_module(m)
        self.place.append(path)
        if qualified_name(type(m)) == _NORM_ACT and m.track_running_stats:
            self.norms[path] = _plain_norm(m)
            out = m.act(m.drop(self.create_proxy("call_module", path, args, kwargs)))
        else:
            out = super().call_module(m, forward, args, kwargs)
        self.place.pop()
        return out


def _plain_norm(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    """The batch norm inside timm's BatchNormAct2d, on the same tensors."""
    plain = nn.BatchNorm2d(
        norm.num_features, norm.eps, norm.momentum, norm.affine, device="meta"
    )
    plain._parameters.update(norm._parameters)
    plain._buffers.update(norm._buffers)
    plain._modules.update(norm._modules)
    return plain.train(norm.training)


def _defaults(model: nn.Module) -> dict[str, object]:
    """Arguments of forward after the first, at their defaults: constants of the trace."""
    parameters = list(inspect.signature(model.forward).parameters.values())[1:]
    return {
        p.name: p.default
        for p in parameters
        if p.default is not p.empty and p.kind is not p.VAR_KEYWORD
    }


def _containers(model: nn.Module) -> list[tuple[dict | list, dict | list]]:
    """Plain dicts and lists that the model's modules hold, and what is in them: some models cache
    results there, which while tracing are no tensors."""
    return [
        (value, value.copy())
        for module in model.modules()
        for name, value in vars(module).items()
        if type(value) in (dict, list) and not name.startswith("_")
    ]


def fx_trace(
    model: nn.Module, input_shape: tuple[int, ...] | None, dtype: torch.dtype
) -> tuple[fx.Graph, Tracer]:
    """torch.fx's graph of ``model`` as it is (which should be eval mode), and the tracer that made
    it.

    :raises ModelInvalid: see :func:`trace`
    """
    constants = _defaults(model)
    branches = None
    if input_shape is not None:
        branches = Branches(model, input_shape, dtype, constants)
    tracer = Tracer(branches)
    tracer.constants = constants
    before = set(vars(model))
    caches = _containers(model)
    try:
        graph = tracer.trace(model, concrete_args=constants or None)
    except Exception as error:
        place = tracer.place[-1] if tracer.place else ""
        cls = type(model.get_submodule(place)).__qualname__
        where = f"module '{place}' ({cls})" if place else "the model itself"
        raise ModelInvalid(
            f"cannot trace {type(model).__name__}: in {where}{_line(error)}: {error}"
            f"{_ADVICE if isinstance(error, fx.proxy.TraceError) else ''}"
        ) from error
    finally:
        for container, content in caches:
            container.clear()
            container.update(content) if isinstance(content, dict) else container.extend(content)
    # fx parks constants it meets on the model itself; keep the model as it was.
    tracer.parked = {name: vars(model)[name] for name in set(vars(model)) - before}
    for name in tracer.parked:
        delattr(model, name)
    return graph, tracer


def _line(error: Exception) -> str:
    """The line of the model's own code that failed."""
    libraries = tuple(f"{Path(file).parent}{os.sep}" for file in (torch.__file__, __file__))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((*libraries, "<")):
            return f", {Path(frame.filename).name}:{frame.lineno} `{frame.line}`"
    return ""


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
