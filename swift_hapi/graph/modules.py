"""The fixed table of module types: which attributes describe each, and how it is built again.

Nothing is imported or looked up by a name from a file; a type that is not in the table does not
exist. Modules whose forward in eval mode returns its input (dropout, stochastic depth) are
written as ``Identity``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from swift_hapi.graph import layers
from swift_hapi.graph.ir import ModuleSpec
from swift_hapi.protocol.errors import ModelInvalid

MAX_INT = 2**31 - 1


def _is_int(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INT


def _is_float(value) -> bool:
    return isinstance(value, float) or _is_int(value)


def _is_bool(value) -> bool:
    return isinstance(value, bool)


def _tuple_of(check, length: range):
    def test(value) -> bool:
        return isinstance(value, tuple) and len(value) in length and all(map(check, value))

    return test


def _any_of(*checks):
    return lambda value: any(check(value) for check in checks)


def _optional(check):
    return lambda value: value is None or check(value)


def _choice(*words: str):
    return lambda value: isinstance(value, str) and value in words


_ints = _any_of(_is_int, _tuple_of(_is_int, range(1, 9)))
_sizes = _any_of(_is_int, _tuple_of(_optional(_is_int), range(1, 4)))
_scales = _any_of(_is_float, _tuple_of(_is_float, range(1, 4)))


@dataclass(frozen=True)
class Field:
    """One configuration value: a check for values from a file, a getter for live modules."""

    check: Callable[[object], bool]
    get: Callable[[nn.Module], object] | None = None


@dataclass(frozen=True)
class ModuleType:
    """A row of the table.

    :param fresh: the output never shares memory with the input (unless ``inplace`` is set)
    :param parts: as how many modules it counts: what it takes to make one
    """

    cls: type[nn.Module]
    fields: dict[str, Field]
    fresh: bool = True
    parts: int = 1


def _activation(layer: nn.TransformerEncoderLayer) -> str | None:
    return {1: "relu", 2: "gelu"}.get(layer.activation_relu_or_gelu)


def _has(name: str) -> Field:
    return Field(_is_bool, lambda module: getattr(module, name) is not None)


_INPLACE = {"inplace": Field(_is_bool)}
_CONV = {
    "in_channels": Field(_is_int),
    "out_channels": Field(_is_int),
    "kernel_size": Field(_ints),
    "stride": Field(_ints),
    "padding": Field(_any_of(_ints, _choice("same", "valid"))),
    "dilation": Field(_ints),
    "groups": Field(_is_int),
    "bias": _has("bias"),
    "padding_mode": Field(_choice("zeros", "reflect", "replicate", "circular")),
}
_CONV_TRANSPOSE = {
    **_CONV,
    "padding": Field(_ints),
    "output_padding": Field(_ints),
    "padding_mode": Field(_choice("zeros")),
}
# A batch norm without running statistics would mix the samples of a batch: not in the table.
_BATCH_NORM = {
    "num_features": Field(_is_int),
    "eps": Field(_is_float),
    "momentum": Field(_optional(_is_float)),
    "affine": Field(_is_bool),
    "track_running_stats": Field(lambda value: value is True),
}
_INSTANCE_NORM = {**_BATCH_NORM, "track_running_stats": Field(_is_bool)}
_MAX_POOL = {
    "kernel_size": Field(_ints),
    "stride": Field(_ints),
    "padding": Field(_ints),
    "dilation": Field(_ints),
    "return_indices": Field(lambda value: value is False),
    "ceil_mode": Field(_is_bool),
}
_AVG_POOL = {
    "kernel_size": Field(_ints),
    "stride": Field(_ints),
    "padding": Field(_ints),
    "ceil_mode": Field(_is_bool),
    "count_include_pad": Field(_is_bool),
    "divisor_override": Field(_optional(_is_int)),
}
_AVG_POOL_1D = {
    key: field
    for key, field in _AVG_POOL.items()
    if key in ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
}
_OUTPUT_SIZE = {"output_size": Field(_sizes)}
_SOFTMAX = {"dim": Field(_optional(_is_int))}
_SLOPE = {"negative_slope": Field(_is_float), **_INPLACE}
_ALPHA = {"alpha": Field(_is_float), **_INPLACE}
_PADDING = {"padding": Field(_ints)}
_SHAPE = _any_of(_is_int, _tuple_of(_is_int, range(1, 9)))
_DROP: dict[str, Field] = {}

MODULE_TYPES: dict[str, ModuleType] = {
    "Conv1d": ModuleType(nn.Conv1d, _CONV),
    "Conv2d": ModuleType(nn.Conv2d, _CONV),
    "Conv3d": ModuleType(nn.Conv3d, _CONV),
    "Conv2dSame": ModuleType(layers.Conv2dSame, _CONV),
    "ConvTranspose2d": ModuleType(nn.ConvTranspose2d, _CONV_TRANSPOSE),
    "BatchNorm1d": ModuleType(nn.BatchNorm1d, _BATCH_NORM),
    "BatchNorm2d": ModuleType(nn.BatchNorm2d, _BATCH_NORM),
    "BatchNorm3d": ModuleType(nn.BatchNorm3d, _BATCH_NORM),
    "InstanceNorm2d": ModuleType(nn.InstanceNorm2d, _INSTANCE_NORM),
    "GroupNorm": ModuleType(
        nn.GroupNorm,
        {
            "num_groups": Field(_is_int),
            "num_channels": Field(_is_int),
            "eps": Field(_is_float),
            "affine": Field(_is_bool),
        },
    ),
    "LayerNorm": ModuleType(
        nn.LayerNorm,
        {
            "normalized_shape": Field(_SHAPE),
            "eps": Field(_is_float),
            "elementwise_affine": Field(_is_bool),
            "bias": _has("bias"),
        },
    ),
    "LocalResponseNorm": ModuleType(
        nn.LocalResponseNorm,
        {
            "size": Field(_is_int),
            "alpha": Field(_is_float),
            "beta": Field(_is_float),
            "k": Field(_is_float),
        },
    ),
    "RMSNorm": ModuleType(
        nn.RMSNorm,
        {
            "normalized_shape": Field(_SHAPE),
            "eps": Field(_optional(_is_float)),
            "elementwise_affine": Field(_is_bool),
        },
    ),
    # Rows that a maximal norm would scale would be overwritten while the network runs.
    "Embedding": ModuleType(
        nn.Embedding,
        {
            "num_embeddings": Field(_is_int),
            "embedding_dim": Field(_is_int),
            "padding_idx": Field(_optional(_is_int)),
            "max_norm": Field(lambda value: value is None),
        },
    ),
    "Linear": ModuleType(
        nn.Linear,
        {"in_features": Field(_is_int), "out_features": Field(_is_int), "bias": _has("bias")},
    ),
    "MultiheadAttention": ModuleType(
        nn.MultiheadAttention,
        {
            "embed_dim": Field(_is_int),
            "num_heads": Field(_is_int),
            "bias": _has("in_proj_bias"),
            "add_bias_kv": _has("bias_k"),
            "add_zero_attn": Field(_is_bool),
            "kdim": Field(_is_int),
            "vdim": Field(_is_int),
            "batch_first": Field(_is_bool),
        },
        parts=10,
    ),
    "TransformerEncoderLayer": ModuleType(
        nn.TransformerEncoderLayer,
        {
            "d_model": Field(_is_int, lambda module: module.self_attn.embed_dim),
            "nhead": Field(_is_int, lambda module: module.self_attn.num_heads),
            "dim_feedforward": Field(_is_int, lambda module: module.linear1.out_features),
            "activation": Field(_choice("relu", "gelu"), _activation),
            "layer_norm_eps": Field(_is_float, lambda module: module.norm1.eps),
            "batch_first": Field(_is_bool, lambda module: module.self_attn.batch_first),
            "norm_first": Field(_is_bool),
            "bias": Field(_is_bool, lambda module: module.linear1.bias is not None),
        },
        parts=25,
    ),
    "ReLU": ModuleType(nn.ReLU, _INPLACE),
    "ReLU6": ModuleType(nn.ReLU6, _INPLACE),
    "SiLU": ModuleType(nn.SiLU, _INPLACE),
    "Mish": ModuleType(nn.Mish, _INPLACE),
    "SELU": ModuleType(nn.SELU, _INPLACE),
    "Hardswish": ModuleType(nn.Hardswish, _INPLACE),
    "Hardsigmoid": ModuleType(nn.Hardsigmoid, _INPLACE),
    "LeakyReLU": ModuleType(nn.LeakyReLU, _SLOPE),
    "ELU": ModuleType(nn.ELU, _ALPHA),
    "CELU": ModuleType(nn.CELU, _ALPHA),
    "Hardtanh": ModuleType(
        nn.Hardtanh,
        {"min_val": Field(_is_float), "max_val": Field(_is_float), **_INPLACE},
    ),
    "Softplus": ModuleType(
        nn.Softplus, {"beta": Field(_is_float), "threshold": Field(_is_float)}
    ),
    "PReLU": ModuleType(nn.PReLU, {"num_parameters": Field(_is_int)}),
    "GELU": ModuleType(nn.GELU, {"approximate": Field(_choice("none", "tanh"))}),
    "Sigmoid": ModuleType(nn.Sigmoid, {}),
    "Tanh": ModuleType(nn.Tanh, {}),
    "Softsign": ModuleType(nn.Softsign, {}),
    "LogSigmoid": ModuleType(nn.LogSigmoid, {}),
    "Softmax": ModuleType(nn.Softmax, _SOFTMAX),
    "LogSoftmax": ModuleType(nn.LogSoftmax, _SOFTMAX),
    "MaxPool1d": ModuleType(nn.MaxPool1d, _MAX_POOL),
    "MaxPool2d": ModuleType(nn.MaxPool2d, _MAX_POOL),
    "MaxPool3d": ModuleType(nn.MaxPool3d, _MAX_POOL),
    "MaxPool2dSame": ModuleType(layers.MaxPool2dSame, _MAX_POOL),
    "AvgPool1d": ModuleType(nn.AvgPool1d, _AVG_POOL_1D),
    "AvgPool2d": ModuleType(nn.AvgPool2d, _AVG_POOL),
    "AvgPool3d": ModuleType(nn.AvgPool3d, _AVG_POOL),
    "AvgPool2dSame": ModuleType(layers.AvgPool2dSame, _AVG_POOL),
    "AdaptiveAvgPool1d": ModuleType(nn.AdaptiveAvgPool1d, _OUTPUT_SIZE),
    "AdaptiveAvgPool2d": ModuleType(nn.AdaptiveAvgPool2d, _OUTPUT_SIZE),
    "AdaptiveAvgPool3d": ModuleType(nn.AdaptiveAvgPool3d, _OUTPUT_SIZE),
    "AdaptiveMaxPool2d": ModuleType(nn.AdaptiveMaxPool2d, _OUTPUT_SIZE),
    "Upsample": ModuleType(
        nn.Upsample,
        {
            "size": Field(_optional(_ints)),
            "scale_factor": Field(_optional(_scales)),
            "mode": Field(_choice("nearest", "linear", "bilinear", "bicubic", "nearest-exact")),
            "align_corners": Field(_optional(_is_bool)),
        },
    ),
    "GLU": ModuleType(nn.GLU, {"dim": Field(_is_int)}),
    "PixelShuffle": ModuleType(nn.PixelShuffle, {"upscale_factor": Field(_is_int)}),
    "PixelUnshuffle": ModuleType(nn.PixelUnshuffle, {"downscale_factor": Field(_is_int)}),
    "ChannelShuffle": ModuleType(nn.ChannelShuffle, {"groups": Field(_is_int)}, fresh=False),
    "ZeroPad2d": ModuleType(nn.ZeroPad2d, _PADDING, fresh=False),
    "ReflectionPad2d": ModuleType(nn.ReflectionPad2d, _PADDING),
    "ReplicationPad2d": ModuleType(nn.ReplicationPad2d, _PADDING),
    "ConstantPad2d": ModuleType(
        nn.ConstantPad2d, {**_PADDING, "value": Field(_is_float)}, fresh=False
    ),
    "Unfold": ModuleType(
        nn.Unfold, {key: Field(_ints) for key in ("kernel_size", "dilation", "padding", "stride")}
    ),
    "Flatten": ModuleType(
        nn.Flatten, {"start_dim": Field(_is_int), "end_dim": Field(_is_int)}, fresh=False
    ),
    "Unflatten": ModuleType(
        nn.Unflatten, {"dim": Field(_is_int), "unflattened_size": Field(_ints)}, fresh=False
    ),
    "Permute": ModuleType(
        layers.Permute, {"dims": Field(_tuple_of(_is_int, range(1, 9)))}, fresh=False
    ),
    "Identity": ModuleType(nn.Identity, _DROP, fresh=False),
}

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
