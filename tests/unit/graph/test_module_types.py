"""Every row of the module table: a live module, its spec, and what is built from it agree."""

from __future__ import annotations

import pytest
from torch import nn

from swift_hapi.graph import layers
from swift_hapi.graph.module_types import MODULE_TYPES
from swift_hapi.graph.modules import spec_of
from tests.unit.graph.models import equal_to_extractor

IMAGE, VECTOR, SEQUENCE, VOLUME = (4, 9, 7), (6,), (4, 10), (2, 3, 4, 5)
LIVE = {
    "Conv1d": (nn.Conv1d(4, 6, 3, 2, 1), SEQUENCE),
    "Conv2d": (nn.Conv2d(4, 6, (3, 1), 2, "valid", 1, 2, bias=False), IMAGE),
    "Conv3d": (nn.Conv3d(2, 3, 2), VOLUME),
    "Conv2dSame": (layers.Conv2dSame(4, 6, 3, 2), IMAGE),
    "ConvTranspose2d": (nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), IMAGE),
    "BatchNorm1d": (nn.BatchNorm1d(6), VECTOR),
    "BatchNorm2d": (nn.BatchNorm2d(4, 1e-3, None, False), IMAGE),
    "BatchNorm3d": (nn.BatchNorm3d(2), VOLUME),
    "InstanceNorm2d": (nn.InstanceNorm2d(4, affine=True), IMAGE),
    "GroupNorm": (nn.GroupNorm(2, 4), IMAGE),
    "LayerNorm": (nn.LayerNorm((9, 7), bias=False), IMAGE),
    "LocalResponseNorm": (nn.LocalResponseNorm(3), IMAGE),
    "RMSNorm": (nn.RMSNorm((7,)), IMAGE),
    "Linear": (nn.Linear(6, 5, bias=False), VECTOR),
    "TransformerEncoderLayer": (
        nn.TransformerEncoderLayer(10, 2, 12, activation="gelu", batch_first=True), SEQUENCE),
    "ReLU": (nn.ReLU(inplace=True), IMAGE),
    "ReLU6": (nn.ReLU6(), IMAGE),
    "SiLU": (nn.SiLU(), IMAGE),
    "Mish": (nn.Mish(), IMAGE),
    "SELU": (nn.SELU(), IMAGE),
    "Hardswish": (nn.Hardswish(inplace=True), IMAGE),
    "Hardsigmoid": (nn.Hardsigmoid(), IMAGE),
    "LeakyReLU": (nn.LeakyReLU(0.2), IMAGE),
    "ELU": (nn.ELU(0.5), IMAGE),
    "CELU": (nn.CELU(), IMAGE),
    "Hardtanh": (nn.Hardtanh(-0.3, 0.4), IMAGE),
    "Softplus": (nn.Softplus(2), IMAGE),
    "PReLU": (nn.PReLU(4), IMAGE),
    "GELU": (nn.GELU("tanh"), IMAGE),
    "Sigmoid": (nn.Sigmoid(), IMAGE),
    "Tanh": (nn.Tanh(), IMAGE),
    "Softsign": (nn.Softsign(), IMAGE),
    "LogSigmoid": (nn.LogSigmoid(), IMAGE),
    "Softmax": (nn.Softmax(1), IMAGE),
    "LogSoftmax": (nn.LogSoftmax(-1), IMAGE),
    "MaxPool1d": (nn.MaxPool1d(2), SEQUENCE),
    "MaxPool2d": (nn.MaxPool2d(3, 2, 1, ceil_mode=True), IMAGE),
    "MaxPool3d": (nn.MaxPool3d(2), VOLUME),
    "MaxPool2dSame": (layers.MaxPool2dSame(3, 2), IMAGE),
    "AvgPool1d": (nn.AvgPool1d(2), SEQUENCE),
    "AvgPool2d": (nn.AvgPool2d(2, count_include_pad=False), IMAGE),
    "AvgPool3d": (nn.AvgPool3d((1, 2, 2)), VOLUME),
    "AvgPool2dSame": (layers.AvgPool2dSame(3, 2, count_include_pad=False), IMAGE),
    "AdaptiveAvgPool1d": (nn.AdaptiveAvgPool1d(3), SEQUENCE),
    "AdaptiveAvgPool2d": (nn.AdaptiveAvgPool2d((3, None)), IMAGE),
    "AdaptiveAvgPool3d": (nn.AdaptiveAvgPool3d((1, 2, None)), VOLUME),
    "AdaptiveMaxPool2d": (nn.AdaptiveMaxPool2d(2), IMAGE),
    "Upsample": (nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), IMAGE),
    "GLU": (nn.GLU(1), IMAGE),
    "PixelShuffle": (nn.PixelShuffle(2), IMAGE),
    "PixelUnshuffle": (nn.PixelUnshuffle(3), (2, 9, 6)),
    "ChannelShuffle": (nn.ChannelShuffle(2), IMAGE),
    "ZeroPad2d": (nn.ZeroPad2d((1, 0, 2, 0)), IMAGE),
    "ReflectionPad2d": (nn.ReflectionPad2d(2), IMAGE),
    "ReplicationPad2d": (nn.ReplicationPad2d(1), IMAGE),
    "ConstantPad2d": (nn.ConstantPad2d(1, 0.5), IMAGE),
    "Unfold": (nn.Unfold(2), IMAGE),
    "Flatten": (nn.Flatten(), IMAGE),
    "Unflatten": (nn.Unflatten(1, (2, 3)), VECTOR),
    "Permute": (layers.Permute((0, 2, 1, 3)), IMAGE),
    "Identity": (nn.Dropout(0.5), IMAGE),
}  # fmt: skip
#: with a test of their own
APART = {"MultiheadAttention", "Embedding"}


class Attends(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **options)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("name", LIVE)
def test_every_type_is_rebuilt_as_it_was(name):
    module, shape = LIVE[name]
    assert spec_of(module).type == name
    equal_to_extractor(nn.Sequential(module), shape)


@pytest.mark.parametrize(
    "options",
    [{}, {"batch_first": True}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}],
)
def test_multihead_attention(options):
    if not options.get("batch_first"):
        # [tokens, n, width]: the batch is not the first dimension inside.
        model = nn.Sequential(layers.Permute((1, 0, 2)), Attends(**options),
                              layers.Permute((1, 0, 2)))  # fmt: skip
    else:
        model = Attends(**options)
    equal_to_extractor(model, (5, 8))


def test_the_table_is_covered():
    assert set(MODULE_TYPES) == set(LIVE) | APART


@pytest.mark.parametrize(
    "options",
    [
        {"batch_first": True, "norm_first": True},
        {"batch_first": True, "bias": False},
        {"batch_first": True, "layer_norm_eps": 1e-3},
        {"batch_first": False},
    ],
)
def test_transformer_layers(options):
    layer = nn.TransformerEncoderLayer(8, 2, 12, **options)
    model = nn.Sequential(layer)
    if not options["batch_first"]:
        model = nn.Sequential(layers.Permute((1, 0, 2)), layer, layers.Permute((1, 0, 2)))
    equal_to_extractor(model, (5, 8))
