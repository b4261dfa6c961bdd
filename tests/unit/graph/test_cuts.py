from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from swift_hapi.graph.cuts import Cut, resolve
from swift_hapi.graph.split import make_extractor, model_cuts
from swift_hapi.protocol.errors import BadCut, ModelInvalid


def test_cuts_of_resnet18(resnet):
    cuts = resnet.extractor.cuts
    assert [cut.index for cut in cuts] == list(range(len(cuts)))
    assert (cuts[0].name, cuts[0].shape) == ("input", (3, 64, 64))
    assert [cut.name for cut in cuts if cut.pareto] == [
        "input", "add_2", "add_4", "add_6", "avgpool",
    ]  # fmt: skip
    assert all(cut.bytes == 4 * math.prod(cut.shape) for cut in cuts)
    # Inside a residual block two tensors are live.
    assert not any(cut.name.startswith("layer1_0_conv") for cut in cuts)


def test_resolve_by_name_and_index(resnet):
    cuts = resnet.extractor.cuts
    assert resolve(cuts, "add_4") is cuts[resolve(cuts, "add_4").index]
    assert resolve(cuts, "0").name == "input"
    assert resolve(cuts, str(len(cuts) - 1)).name == "fc"


@pytest.mark.parametrize("split", ["add_44", "", "-1", "999", "٣", "1e3", "x" * 10_000])
def test_unknown_cuts_are_refused(resnet, split):
    with pytest.raises(BadCut) as caught:
        resolve(resnet.extractor.cuts, split)
    assert len(caught.value.detail) < 1000


def test_near_names_are_told(resnet):
    with pytest.raises(BadCut, match="layer4_1_relu"):
        resolve(resnet.extractor.cuts, "layer4_1_rellu")


def test_near_names_are_not_looked_for_without_end():
    """It is quadratic in the length of names, and runs where nothing may take long."""
    def cut(i: int, name: str) -> Cut:
        return Cut(i, name, (1,), 4, False)

    many = [cut(i, f"n{i}") for i in range(5000)] + [cut(5000, "particular")]
    with pytest.raises(BadCut) as caught:
        resolve(many, "particulars")
    assert "particular," not in caught.value.detail.replace("particulars", "")
    long = [cut(0, "a"), cut(1, "particular" * 19)]
    with pytest.raises(BadCut) as caught:
        resolve(long, "particular" * 18)
    assert "particular" * 19 not in caught.value.detail
    assert resolve(many, "particular").index == 5000


class _UsesSizeLater(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.second = nn.Conv2d(4, 4, 3)

    def forward(self, x):
        n = x.size(0)
        x = self.second(self.first(x))
        return x.reshape(n, -1)


def test_no_cut_while_a_number_is_live():
    names = [cut.name for cut in model_cuts(_UsesSizeLater(), (3, 16, 16))]
    assert names == ["input", "reshape"]


class _Windows(nn.Module):
    def forward(self, x):
        windows = x.reshape(-1, 3, 8, 8) * 2
        return windows.reshape(-1, 3, 16, 16) + 1


def test_no_cut_where_the_first_dimension_is_not_the_batch():
    names = [cut.name for cut in model_cuts(_Windows(), (3, 16, 16))]
    assert "reshape" not in names and names[-1] == "add"


class _MixesBatch(nn.Module):
    def forward(self, x):
        return x.flatten(1).t()


def test_an_output_without_batch_dimension_is_refused():
    with pytest.raises(ModelInvalid, match="one float32 tensor per sample"):
        make_extractor(_MixesBatch(), None, (3, 4, 4))


class _Quadratic(nn.Module):
    def forward(self, x):
        n = x.size(0)
        y = x.flatten(1)
        return y + y.repeat(n * n, 1).sum(0)


def test_memory_may_not_grow_faster_than_the_batch():
    with pytest.raises(ModelInvalid, match="grows faster than the batch"):
        make_extractor(_Quadratic(), None, (3, 4, 4))


def test_shapes_that_do_not_suit_are_typed(resnet):
    with pytest.raises(ModelInvalid, match="conv1"):
        resnet.extractor.cuts_for((4, 64, 64))


def test_layouts_do_not_depend_on_who_asks(resnet):
    from swift_hapi.graph.interpreter import find_layouts

    layouts = find_layouts(resnet.extractor)
    assert layouts["input"] == (0, 2, 3, 1)
    assert layouts["fc"] == (0, 1)
    assert set(layouts) == {cut.name for cut in resnet.extractor.cuts}
    assert torch.is_grad_enabled()
