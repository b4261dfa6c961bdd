from __future__ import annotations

import pytest
import torch
from torch import nn

from swift_hapi.graph.flops import flops_per_sample
from swift_hapi.graph.memory import (
    CalibrationFailed,
    MemoryModel,
    fit,
    peak_bytes,
    per_sample_bytes,
    read_measurement,
)
from swift_hapi.graph.split import make_extractor


def test_peak_of_a_chain_is_counted_by_hand():
    model = nn.Sequential(nn.Conv2d(1, 8, 1), nn.Sigmoid(), nn.Conv2d(8, 1, 1), nn.Flatten())
    extractor = make_extractor(model, None, (1, 10, 10))
    last = extractor.cuts[-1]
    image = 100 * 4
    # The input stays with the caller; the sigmoid's input and output are alive together.
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


def test_two_measurements_give_factor_and_scratch():
    # 40 MB of scratch, and 1.5 times of 10 MB for each sample.
    model = fit(10_000_000, {4: 100_000_000, 16: 280_000_000})
    assert 1.5 < model.times < 1.6
    assert 40e6 < model.once < 45e6
    # Never below what is alive, however the runs turned out.
    assert fit(10_000_000, {4: 100_000_000, 16: 90_000_000}).times >= 1


def test_what_is_no_measurement_is_said():
    assert read_measurement('{"4": {"peak": 7}}') == {4: 7}
    for printed in ("", "{", "[]", '{"4": 7}', '{"four": {"peak": 7}}'):
        with pytest.raises(CalibrationFailed):
            read_measurement(printed)
    for once, times in ((-1, 1), (1, 0), (float("nan"), 1), (1, float("inf"))):
        with pytest.raises(ValueError, match="no memory model"):
            MemoryModel(once, times)
