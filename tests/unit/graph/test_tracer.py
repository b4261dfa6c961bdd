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


class Decides(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


def test_the_error_tells_which_line_cannot_be_followed_and_what_to_do():
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(Decides()))
    with pytest.raises(ModelInvalid) as caught:
        make_extractor(model, None, (3,))
    text = caught.value.detail
    assert "in module '1.0' (Decides)" in text and "torch.where" in text
    assert "test_tracer.py:" in text and "if x.sum() > 0" in text


def test_subclasses_of_known_layers_are_not_taken_for_them():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = nn.Sequential(Doubled(3, 3)).eval()
    extractor = make_extractor(model, None, (3,))
    x = torch.rand(2, 3)
    with torch.no_grad():
        assert torch.equal(Head(extractor, extractor.cuts[-1])(x), model(x))
