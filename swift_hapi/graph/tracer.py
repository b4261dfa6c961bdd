"""Follow the forward of a live module with torch.fx: what is taken whole, what is followed, and
how decisions that depend on a sample's shape are made on the way."""

from __future__ import annotations

import inspect
import os
import traceback
from pathlib import Path

import torch
from torch import fx, nn

from swift_hapi.graph.branches import Branches
from swift_hapi.graph.modules import qualified_name, type_of
from swift_hapi.protocol.errors import ModelInvalid

_ADVICE = (
    ". The way through a model may depend on the shape of a sample, not on values or on the size "
    "of the batch: torch.where chooses by value"
)
#: batch norm with an activation inside: taken apart, so that its norm is an ordinary batch norm
_NORM_ACT = "timm.layers.norm_act.BatchNormAct2d"


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

    :raises ModelInvalid: the model cannot be traced; the detail names the module and the line
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
