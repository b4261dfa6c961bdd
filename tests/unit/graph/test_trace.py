from __future__ import annotations

import pytest
import torch
from torch import nn

from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import make_extractor
from swift_hapi.graph.trace import trace
from swift_hapi.protocol.errors import ModelInvalid


class Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("grid", torch.arange(3.0), persistent=False)

    def forward(self, x):
        return x * self.grid + torch.tensor([1.0, 2.0, 3.0])


def test_constants_travel_and_the_model_stays_clean():
    model = Constant().eval()
    before = set(vars(model))
    extractor = make_extractor(model, None, (3,))
    assert set(vars(model)) == before
    assert len(extractor.constants) == 2 and "grid" in extractor.constants
    x = torch.rand(2, 3)
    assert torch.equal(Head(extractor, extractor.cuts[-1])(x), model(x))


def test_the_mode_is_left_alone():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
    model[2].eval()
    trace(model)
    assert (model.training, model[1].training, model[2].training) == (True, True, False)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.ModuleList(), "cannot trace"),
        (nn.Sequential(nn.MaxPool2d(2, return_indices=True)), "one float32 tensor"),
        (nn.Sequential(nn.LSTM(3, 3)), "LSTM"),
        (nn.Sequential(nn.Linear(3, 3).double()), "float64"),
    ],
)
def test_models_without_a_place_in_a_file(model, message):
    with pytest.raises(ModelInvalid, match=message):
        make_extractor(model, None, (3, 3, 3))


def test_the_error_tells_where_a_model_can_be_frozen_all_the_same():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.LSTM(3, 3))

    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x):
            return self.parts(x)[0]

    with pytest.raises(ModelInvalid, match="LSTM.*; freeze at 'parts_1' or before"):
        make_extractor(First(), None, (2, 3))
    assert make_extractor(First(), "parts_1", (2, 3)).cuts[-1].name == "parts_1"


def test_hooks_are_not_silently_dropped():
    model = nn.Sequential(nn.Linear(3, 3))
    model[0].register_forward_hook(lambda module, args, out: out + 1)
    with pytest.raises(ModelInvalid, match="hooks"):
        make_extractor(model, None, (3,))


def test_output_must_be_a_tensor():
    class Two(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(ModelInvalid, match="one tensor"):
        trace(Two())
