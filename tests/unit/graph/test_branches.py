"""Conditions on a sample's shape are decided when a model is traced, others are refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from swift_hapi.graph.extractor import load_extractor, save_extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.errors import ModelInvalid


class Evens(nn.Module):
    """Makes odd heights even before a convolution that needs it; also inside of a module."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        x = self.conv(x)
        tokens = x.flatten(2).transpose(1, 2)
        tokens = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        x = tokens.transpose(1, 2).reshape(x.shape)
        if x.shape[2] % 2:
            x = F.pad(x, (0, 0, 0, 1))
        return F.relu(x)


@pytest.mark.parametrize("height", [7, 8])
def test_both_ways(height, tmp_path):
    torch.manual_seed(0)
    model = Evens().eval()
    x = torch.rand(2, 3, height, 5).contiguous(memory_format=torch.channels_last)
    path = tmp_path / "x.safetensors"
    save_extractor(make_extractor(model, None, x.shape[1:]), path)
    loaded = load_extractor(path)
    assert loaded.fixed
    with torch.inference_mode():
        assert torch.equal(Head(loaded, loaded.cuts[-1])(x), model(x))
    assert loaded.cuts_for((3, height, 5)) == loaded.cuts
    with pytest.raises(ModelInvalid, match=f"3x{height}x5 only"):
        loaded.cuts_for((3, height + 1, 5))


def test_models_without_conditions_are_not_fixed(resnet):
    assert not resnet.extractor.fixed


class OnBatch(nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] > 2 else x


class OnValue(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 2 else x


@pytest.mark.parametrize("model", [OnBatch(), OnValue()])
def test_other_conditions_are_refused(model):
    with pytest.raises(ModelInvalid, match="control flow"):
        make_extractor(model, None, (3,))


def test_mobilevit_traces(tmp_path):
    import timm

    torch.manual_seed(0)
    model = timm.create_model("mobilevit_xxs", num_classes=5).eval()
    x = torch.rand(2, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    extractor = make_extractor(model, None, (3, 64, 64))
    with torch.inference_mode():
        assert torch.equal(Head(extractor, extractor.cuts[-1])(x), model(x))
