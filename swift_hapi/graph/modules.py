"""Modules and their descriptions: what of a live module is written down, and how one is built.

The types are those of :data:`~swift_hapi.graph.module_types.MODULE_TYPES`. Modules whose forward
in eval mode returns its input (dropout, stochastic depth) are written as ``Identity``.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from swift_hapi.graph.ir import ModuleSpec
from swift_hapi.graph.module_types import MODULE_TYPES
from swift_hapi.protocol.errors import ModelInvalid

#: types that hold modules of their own
_OF_PARTS = frozenset({"MultiheadAttention", "TransformerEncoderLayer"})
_DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
_TYPE_OF_CLASS = {
    **{row.cls: name for name, row in MODULE_TYPES.items()},
    **dict.fromkeys(_DROPOUTS, "Identity"),
}
#: classes of other libraries, by qualified name so that they need not be imported
_TYPE_OF_FOREIGN = {
    "torchvision.ops.misc.Permute": "Permute",
    "torchvision.ops.stochastic_depth.StochasticDepth": "Identity",
    "timm.layers.drop.DropPath": "Identity",
    "timm.layers.linear.Linear": "Linear",
    "timm.layers.conv2d_same.Conv2dSame": "Conv2dSame",
    "timm.layers.pool2d_same.MaxPool2dSame": "MaxPool2dSame",
    "timm.layers.pool2d_same.AvgPool2dSame": "AvgPool2dSame",
}


def qualified_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def type_of(module: nn.Module) -> str | None:
    """The table's name for the module's class; None when it has none (subclasses included:
    their forward may differ)."""
    cls = type(module)
    return _TYPE_OF_CLASS.get(cls) or _TYPE_OF_FOREIGN.get(qualified_name(cls))


def spec_of(module: nn.Module, path: str = "") -> ModuleSpec:
    """Describe a live module.

    :raises ModelInvalid: the type is not in the table, an attribute is outside what the table
        allows, or hooks change what the module does
    """
    place = f"module '{path}' ({qualified_name(type(module))})"
    name = type_of(module)
    if name is None:
        raise ModelInvalid(f"{place} is not of a type that extractor files can hold")
    if module._forward_hooks or module._forward_pre_hooks:
        raise ModelInvalid(f"{place} has forward hooks, which a file cannot hold")
    config = {}
    for key, field in MODULE_TYPES[name].fields.items():
        value = field.get(module) if field.get else getattr(module, key)
        if isinstance(value, (list, torch.Size)):
            value = tuple(value)
        if not field.check(value):
            raise ModelInvalid(f"{place} has {key}={value!r}, which extractor files cannot hold")
        config[key] = value
    spec = ModuleSpec(name, config)
    if name in _OF_PARTS:
        _check_parts(module, spec, path)
    return spec


def _check_parts(module: nn.Module, spec: ModuleSpec, path: str) -> None:
    """A module of several parts is described by its constructor's arguments: that holds only as
    long as nobody has put other parts, settings or hooks into it.

    :raises ModelInvalid: naming the part that is not as the constructor makes it
    """
    built = dict(build(spec, path).named_modules())
    parts = dict(module.named_modules())
    odd = sorted(set(built) ^ set(parts))
    for name in sorted(set(built) & set(parts) - {""}):
        ours, theirs = built[name], parts[name]
        # Linear layers within attention are of a subclass that has no row of its own.
        known = type_of(theirs) == type_of(ours) is not None
        same = spec_of(theirs, f"{path}.{name}") == spec_of(ours) if known else (
            type(theirs) is type(ours)
            and not theirs._forward_hooks and not theirs._forward_pre_hooks
        )  # fmt: skip
        if not same:
            odd.append(name)
    if odd:
        raise ModelInvalid(
            f"module '{path}' ({qualified_name(type(module))}) is not as its constructor makes "
            f"it: {', '.join(odd)}; extractor files cannot hold that"
        )


def check_spec(spec: ModuleSpec, path: str) -> None:
    """:raises ModelInvalid: unknown type, missing or unknown key, value the table refuses"""
    row = MODULE_TYPES.get(spec.type)
    if row is None:
        raise ModelInvalid(f"module '{path}': unknown type '{spec.type}'")
    if set(spec.config) != set(row.fields):
        odd = sorted(set(spec.config) ^ set(row.fields))
        raise ModelInvalid(f"module '{path}' ({spec.type}): wrong settings {', '.join(odd)}")
    for key, field in row.fields.items():
        if not field.check(spec.config[key]):
            raise ModelInvalid(f"module '{path}' ({spec.type}): bad {key}")


def build(spec: ModuleSpec, path: str = "") -> nn.Module:
    """The module in eval mode, on the meta device: it has shapes but no memory.

    :raises ModelInvalid: the constructor refuses the settings
    """
    check_spec(spec, path)
    try:
        with torch.device("meta"):
            return MODULE_TYPES[spec.type].cls(**spec.config).eval()
    except Exception as error:
        raise ModelInvalid(f"module '{path}' ({spec.type}): {error}") from error


def parameter(tensor: torch.Tensor) -> nn.Parameter:
    """``tensor`` as a weight, not copied. It says that it requires gradients, although none is
    ever computed: torch multiplies by another kernel when it does not (``matmul`` folds), and
    the last bits would differ from those of the model as it comes."""
    return nn.Parameter(tensor, requires_grad=tensor.is_floating_point())


def bind(module: nn.Module, path: str, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """A twin of ``module`` (as :func:`build` makes it) with the tensors ``<path>.<name>`` as its
    weights, not copied."""
    twin = object.__new__(type(module))
    twin.__dict__.update(module.__dict__)
    twin.__dict__["_parameters"] = {
        name: None if old is None else parameter(tensors[f"{path}.{name}"])
        for name, old in module._parameters.items()
    }
    twin.__dict__["_buffers"] = {
        name: None if old is None else tensors[f"{path}.{name}"]
        for name, old in module._buffers.items()
    }
    twin.__dict__["_modules"] = {
        name: bind(part, f"{path}.{name}", tensors) for name, part in module._modules.items()
    }
    return twin
