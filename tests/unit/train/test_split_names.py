from __future__ import annotations

import pytest
import torch
from torch import nn

from hapi_compute.train.split_names import find_cut
from swift_hapi.graph.split import build_transfer

SHAPE = (3, 8, 8)


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("stem", nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))
    model.add_module("pool", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    model.add_module("fc", nn.Linear(4, 5))
    return build_transfer(model.eval(), "pool", 3, 0, SHAPE)[0], model


@pytest.mark.parametrize(
    ("split", "found"),
    [("stem", "stem_1"), ("pool", "pool_1"), ("stem.0", "stem_0"), ("stem_0", "stem_0"),
     ("0", "input"), ("1", "stem_0")],
)  # fmt: skip
def test_a_module_is_as_good_as_its_last_cut(parts, split, found):
    cut = find_cut(split, *parts, SHAPE)
    assert cut.index == 0 if found == "input" else cut.name == found


@pytest.mark.parametrize(
    ("split", "why"),
    [("fc", "the module ends at 'fc', behind the freeze point 'pool_1'"),
     ("stam", "split='stam': no cut is called 'stam'")],
)  # fmt: skip
def test_none_in_the_frozen_part(parts, split, why):
    with pytest.raises(ValueError, match=why):
        find_cut(split, *parts, SHAPE)
