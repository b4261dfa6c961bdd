"""Live modules that are more than their class says, or of another library."""

from __future__ import annotations

import pytest
from torch import nn

from swift_hapi.graph.modules import spec_of
from swift_hapi.protocol.errors import ModelInvalid
from tests.unit.graph.models import equal_to_extractor


class _Wider(nn.Linear):
    pass


def _altered(change) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    change(layer)
    return layer


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        (lambda layer: setattr(layer, "linear1", _Wider(8, 12)), "linear1"),
        (lambda layer: setattr(layer.norm2, "eps", 0.5), "norm2"),
        (lambda layer: setattr(layer, "more", nn.Linear(1, 1)), "more"),
        (lambda layer: layer.linear2.register_forward_hook(lambda *args: None), "linear2"),
        (lambda layer: layer.self_attn.out_proj.register_forward_hook(lambda *args: None),
         "out_proj"),
        (lambda layer: setattr(layer, "activation_relu_or_gelu", 0), "activation"),
    ],
)  # fmt: skip
def test_altered_parts_are_not_silently_dropped(change, culprit):
    with pytest.raises(ModelInvalid, match=culprit):
        spec_of(_altered(change))


def test_same_padding_agrees_with_timm():
    from timm.layers import Conv2dSame
    from timm.layers.pool2d_same import AvgPool2dSame, MaxPool2dSame

    for theirs in (Conv2dSame(4, 6, 3, 2), MaxPool2dSame(3, 2), AvgPool2dSame(3, 2)):
        for size in ((9, 7), (8, 8), (2, 5)):
            equal_to_extractor(nn.Sequential(theirs), (4, *size))
