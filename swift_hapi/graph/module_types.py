"""The fixed table of module types: the class behind each, and which settings describe it.

Nothing is imported or looked up by a name from a file; a type that is not in the table does not
exist.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from swift_hapi.graph import layers
from swift_hapi.graph.settings import (
    Field,
    any_of,
    choice,
    ints,
    is_bool,
    is_float,
    is_int,
    is_reach,
    optional,
    reaches,
    scales,
    sizes,
    tuple_of,
)


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
    return Field(is_bool, lambda module: getattr(module, name) is not None)


_INPLACE = {"inplace": Field(is_bool)}
_CONV = {
    "in_channels": Field(is_int),
    "out_channels": Field(is_int),
    "kernel_size": Field(reaches),
    "stride": Field(reaches),
    "padding": Field(any_of(reaches, choice("same", "valid"))),
    "dilation": Field(reaches),
    "groups": Field(is_reach),
    "bias": _has("bias"),
    "padding_mode": Field(choice("zeros", "reflect", "replicate", "circular")),
}
_CONV_TRANSPOSE = {
    **_CONV,
    "padding": Field(reaches),
    "output_padding": Field(reaches),
    "padding_mode": Field(choice("zeros")),
}
# A batch norm without running statistics would mix the samples of a batch: not in the table.
_BATCH_NORM = {
    "num_features": Field(is_int),
    "eps": Field(is_float),
    "momentum": Field(optional(is_float)),
    "affine": Field(is_bool),
    "track_running_stats": Field(lambda value: value is True),
}
_INSTANCE_NORM = {**_BATCH_NORM, "track_running_stats": Field(is_bool)}
_MAX_POOL = {
    "kernel_size": Field(reaches),
    "stride": Field(reaches),
    "padding": Field(reaches),
    "dilation": Field(reaches),
    "return_indices": Field(lambda value: value is False),
    "ceil_mode": Field(is_bool),
}
_AVG_POOL = {
    "kernel_size": Field(reaches),
    "stride": Field(reaches),
    "padding": Field(reaches),
    "ceil_mode": Field(is_bool),
    "count_include_pad": Field(is_bool),
    "divisor_override": Field(optional(lambda value: is_int(value) and value > 0)),
}
_AVG_POOL_1D = {
    key: field
    for key, field in _AVG_POOL.items()
    if key in ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
}
_OUTPUT_SIZE = {"output_size": Field(sizes)}
_SOFTMAX = {"dim": Field(optional(is_int))}
_SLOPE = {"negative_slope": Field(is_float), **_INPLACE}
_ALPHA = {"alpha": Field(is_float), **_INPLACE}
_PADDING = {"padding": Field(reaches)}
_SHAPE = any_of(is_int, tuple_of(is_int, range(1, 9)))
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
            "num_groups": Field(is_reach),
            "num_channels": Field(is_int),
            "eps": Field(is_float),
            "affine": Field(is_bool),
        },
    ),
    "LayerNorm": ModuleType(
        nn.LayerNorm,
        {
            "normalized_shape": Field(_SHAPE),
            "eps": Field(is_float),
            "elementwise_affine": Field(is_bool),
            "bias": _has("bias"),
        },
    ),
    "LocalResponseNorm": ModuleType(
        nn.LocalResponseNorm,
        {
            "size": Field(is_int),
            "alpha": Field(is_float),
            "beta": Field(is_float),
            "k": Field(is_float),
        },
    ),
    "RMSNorm": ModuleType(
        nn.RMSNorm,
        {
            "normalized_shape": Field(_SHAPE),
            "eps": Field(optional(is_float)),
            "elementwise_affine": Field(is_bool),
        },
    ),
    # Rows that a maximal norm would scale would be overwritten while the network runs.
    "Embedding": ModuleType(
        nn.Embedding,
        {
            "num_embeddings": Field(is_int),
            "embedding_dim": Field(is_int),
            "padding_idx": Field(optional(is_int)),
            "max_norm": Field(lambda value: value is None),
        },
    ),
    "Linear": ModuleType(
        nn.Linear,
        {"in_features": Field(is_int), "out_features": Field(is_int), "bias": _has("bias")},
    ),
    "MultiheadAttention": ModuleType(
        nn.MultiheadAttention,
        {
            "embed_dim": Field(is_int),
            "num_heads": Field(is_int),
            "bias": _has("in_proj_bias"),
            "add_bias_kv": _has("bias_k"),
            "add_zero_attn": Field(is_bool),
            "kdim": Field(is_int),
            "vdim": Field(is_int),
            "batch_first": Field(is_bool),
        },
        parts=10,
    ),
    "TransformerEncoderLayer": ModuleType(
        nn.TransformerEncoderLayer,
        {
            "d_model": Field(is_int, lambda module: module.self_attn.embed_dim),
            "nhead": Field(is_int, lambda module: module.self_attn.num_heads),
            "dim_feedforward": Field(is_int, lambda module: module.linear1.out_features),
            "activation": Field(choice("relu", "gelu"), _activation),
            "layer_norm_eps": Field(is_float, lambda module: module.norm1.eps),
            "batch_first": Field(is_bool, lambda module: module.self_attn.batch_first),
            "norm_first": Field(is_bool),
            "bias": Field(is_bool, lambda module: module.linear1.bias is not None),
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
        {"min_val": Field(is_float), "max_val": Field(is_float), **_INPLACE},
    ),
    "Softplus": ModuleType(
        nn.Softplus, {"beta": Field(is_float), "threshold": Field(is_float)}
    ),
    "PReLU": ModuleType(nn.PReLU, {"num_parameters": Field(is_int)}),
    "GELU": ModuleType(nn.GELU, {"approximate": Field(choice("none", "tanh"))}),
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
            "size": Field(optional(ints)),
            "scale_factor": Field(optional(scales)),
            "mode": Field(choice("nearest", "linear", "bilinear", "bicubic", "nearest-exact")),
            "align_corners": Field(optional(is_bool)),
        },
    ),
    "GLU": ModuleType(nn.GLU, {"dim": Field(is_int)}),
    "PixelShuffle": ModuleType(nn.PixelShuffle, {"upscale_factor": Field(is_reach)}),
    "PixelUnshuffle": ModuleType(nn.PixelUnshuffle, {"downscale_factor": Field(is_reach)}),
    "ChannelShuffle": ModuleType(nn.ChannelShuffle, {"groups": Field(is_reach)}, fresh=False),
    "ZeroPad2d": ModuleType(nn.ZeroPad2d, _PADDING, fresh=False),
    "ReflectionPad2d": ModuleType(nn.ReflectionPad2d, _PADDING),
    "ReplicationPad2d": ModuleType(nn.ReplicationPad2d, _PADDING),
    "ConstantPad2d": ModuleType(
        nn.ConstantPad2d, {**_PADDING, "value": Field(is_float)}, fresh=False
    ),
    "Unfold": ModuleType(
        nn.Unfold,
        {key: Field(reaches) for key in ("kernel_size", "dilation", "padding", "stride")},
    ),
    "Flatten": ModuleType(
        nn.Flatten, {"start_dim": Field(is_int), "end_dim": Field(is_int)}, fresh=False
    ),
    "Unflatten": ModuleType(
        nn.Unflatten, {"dim": Field(is_int), "unflattened_size": Field(ints)}, fresh=False
    ),
    "Permute": ModuleType(
        layers.Permute, {"dims": Field(tuple_of(is_int, range(1, 9)))}, fresh=False
    ),
    "Identity": ModuleType(nn.Identity, _DROP, fresh=False),
}
