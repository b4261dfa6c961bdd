from __future__ import annotations

import torch
from torch import nn

from swift_hapi.graph.flops import flops_per_sample
from swift_hapi.graph.memory import peak_bytes, per_sample_bytes
from swift_hapi.graph.split import make_extractor


def test_peak_of_a_chain_is_counted_by_hand():
    model = nn.Sequential(nn.Conv2d(1, 8, 1), nn.Sigmoid(), nn.Conv2d(8, 1, 1), nn.Flatten())
    extractor = make_extractor(model, None, (1, 10, 10))
    last = extractor.cuts[-1]
    image = 100 * 4
    # The input stays with the caller; a convolution may hold its output twice; after it the
    # sigmoid's input and output are alive together.
    assert per_sample_bytes(extractor, last) == image * (1 + 8 + 8)
    assert peak_bytes(extractor, last, 5) == 5 * image * (1 + 8 + 8)
    assert per_sample_bytes(extractor, extractor.cuts[0]) == image


def test_views_and_in_place_results_count_once():
    model = nn.Sequential(nn.ReLU(), nn.ReLU(inplace=True), nn.Flatten())
    extractor = make_extractor(model, None, (1, 10, 10))
    assert per_sample_bytes(extractor, extractor.cuts[-1]) == 2 * 400


def test_known_models(resnet):
    last = resnet.extractor.cuts[-1]
    at_224 = per_sample_bytes(resnet.extractor, last, (3, 224, 224))
    # Input 0.6 MB; at the first norm two tensors of 64 x 112 x 112, 3.2 MB each.
    assert 6.4e6 < at_224 < 8e6
    assert per_sample_bytes(resnet.extractor, last) < at_224 / 10
    weights = sum(t.nbytes for t in resnet.model.state_dict().values())
    assert resnet.extractor.weight_bytes == weights


def test_flops(resnet):
    flops = flops_per_sample(resnet.extractor, (3, 224, 224))
    values = [flops[cut.name] for cut in resnet.extractor.cuts]
    assert values == sorted(values) and values[0] == 0
    # 1.81 GMAC in the literature; a multiply-add counts as two.
    assert abs(values[-1] - 3.63e9) < 0.02e9
    assert torch.is_grad_enabled()
