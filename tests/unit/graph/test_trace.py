from __future__ import annotations

import pytest
import torch
from torch import nn

from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import make_extractor
from swift_hapi.graph.trace import trace
from swift_hapi.protocol.errors import ModelInvalid


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)


class Inner(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x


def test_untraceable_models_name_the_module():
    with pytest.raises(ModelInvalid, match=r"'inner' .*Inner.*control flow"):
        trace(Branches())


class Optional(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x, mask=None, scale: float = 2.0, again: bool = False):
        x = self.fc(x) * scale
        if mask is not None:
            x = x * mask
        return self.fc(x) if again else x


def test_defaults_of_forward_are_constants():
    model = Optional().eval()
    extractor = make_extractor(model, None, (3,))
    assert [cut.name for cut in extractor.cuts] == ["input", "fc", "mul"]
    x = torch.rand(2, 3)
    with torch.no_grad():
        assert torch.equal(Head(extractor, extractor.cuts[-1])(x), model(x))


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


class Caching(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.arange(4.0))
        self.cache = {}

    def forward(self, x):
        if "row" not in self.cache:
            self.cache["row"] = self.table[:3] * 2
        return x + self.cache["row"]


def test_what_a_model_caches_is_not_left_from_a_trace():
    model, x = Caching().eval(), torch.rand(2, 3)
    first, second = (make_extractor(model, None, (3,)) for _ in range(2))
    assert not model.cache and first.digest == second.digest
    with torch.no_grad():
        assert torch.equal(Head(first, first.cuts[-1])(x), model(x))
    assert torch.is_tensor(model.cache["row"])


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


class Decides(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


def test_the_error_tells_which_line_cannot_be_followed_and_what_to_do():
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(Decides()))
    with pytest.raises(ModelInvalid) as caught:
        make_extractor(model, None, (3,))
    text = caught.value.detail
    assert "in module '1.0' (Decides)" in text and "torch.where" in text
    assert "test_trace.py:" in text and "if x.sum() > 0" in text


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


def test_subclasses_of_known_layers_are_not_taken_for_them():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = nn.Sequential(Doubled(3, 3)).eval()
    extractor = make_extractor(model, None, (3,))
    x = torch.rand(2, 3)
    with torch.no_grad():
        assert torch.equal(Head(extractor, extractor.cuts[-1])(x), model(x))


def test_output_must_be_a_tensor():
    class Two(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(ModelInvalid, match="one tensor"):
        trace(Two())
