from __future__ import annotations

import pytest
import torch
from torch import nn

from hapi_compute.train.precision import autocast, resolve, scaler

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.parametrize("asked", ["float32", "bfloat16"])
def test_what_is_asked_for(asked):
    assert resolve(asked, CPU) == resolve(asked, GPU) == asked


def test_auto_depends_on_the_device(monkeypatch):
    assert resolve("auto", CPU) == "float32"
    for supported, expected in ((True, "bfloat16"), (False, "float32")):
        # What a GPU without instructions for it could still emulate does not count.
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported",
            lambda including_emulation=True, supported=supported: including_emulation or supported,
        )  # fmt: skip
        assert resolve("auto", GPU) == expected


def test_float16_is_for_gpus():
    assert resolve("float16", GPU) == "float16"
    with pytest.raises(ValueError, match="precision='float16': .*CPU; want float32, bfloat16"):
        resolve("float16", CPU)


def test_layers_compute_in_it_and_only_within():
    layer, x = nn.Linear(4, 2), torch.ones(1, 4)
    with autocast("float32", CPU):
        assert layer(x).dtype == torch.float32
    with autocast("bfloat16", CPU):
        assert layer(x).dtype == torch.bfloat16
    assert layer(x).dtype == layer.weight.dtype == torch.float32


def test_only_float16_scales_gradients():
    assert not scaler("float32", CPU).is_enabled() and not scaler("bfloat16", CPU).is_enabled()
    assert scaler("float16", CPU).is_enabled()
