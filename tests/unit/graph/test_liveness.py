from __future__ import annotations

import pytest
import torch
from torch import nn

from swift_hapi.graph.liveness import live_profile
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.errors import ModelInvalid

IMAGE = 100 * 4


def profile_of(model: nn.Module, shape=(1, 10, 10)):
    extractor = make_extractor(model.eval(), None, shape)
    return live_profile(extractor, extractor.cuts[-1])


def test_growth_is_told_by_node():
    profile = profile_of(
        nn.Sequential(nn.Conv2d(1, 8, 1), nn.Sigmoid(), nn.Conv2d(8, 2, 1), nn.Flatten())
    )
    assert profile.steps == (8 * IMAGE, 8 * IMAGE, 2 * IMAGE, 0)
    assert profile.peak == (1 + 8 + 8) * IMAGE


def test_operations_within_a_module_are_seen():
    """Attention holds its projections and scores, which no node shows."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    profile = profile_of(nn.Sequential(layer), (10, 8))
    assert profile.peak > 5 * 10 * 8 * 4


def test_a_batch_that_is_written_to_is_held_twice():
    class Shift(nn.Module):
        def forward(self, x):
            x += 1
            return x.flatten(1)

    assert profile_of(Shift()).peak == 2 * IMAGE


def test_very_much_alive_is_still_counted():
    """More than are looked through at every operation."""

    class Wide(nn.Module):
        def forward(self, x):
            kept = [x * i for i in range(700)]
            return torch.cat(kept, 1).flatten(1)

    peak = profile_of(Wide()).peak
    assert 1401 * IMAGE <= peak < 1.01 * 1401 * IMAGE


def test_the_cut_input_takes_the_input():
    extractor = make_extractor(nn.Sequential(nn.ReLU(), nn.Flatten()), None, (1, 10, 10))
    profile = live_profile(extractor, extractor.cuts[0])
    assert profile.peak == IMAGE and profile.steps == ()


def test_weights_are_not_counted():
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("bias", torch.ones(1 << 16))

        def forward(self, x):
            return x.flatten(1) + self.bias.view(64, -1).mean()

    assert profile_of(Biased()).peak < 3 * IMAGE + 64


def test_other_shapes_are_refused_if_they_do_not_run(resnet):
    last = resnet.extractor.cuts[-1]
    with pytest.raises(ModelInvalid, match="does not run on input 5x8x8"):
        live_profile(resnet.extractor, last, (5, 8, 8))
