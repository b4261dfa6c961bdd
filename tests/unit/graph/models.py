"""Models for the tests, each with a whole-model extractor, an input and the plain output."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import nn

from hapi_compute.models import load_model
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import make_extractor


@dataclass(frozen=True)
class Sample:
    """:param x: [n, 3, side, side], channels_last; ``y`` is what ``model`` makes of it"""

    name: str
    weights: str
    model: nn.Module
    extractor: Extractor
    x: torch.Tensor
    y: torch.Tensor


def image(side: int, batch: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    x = torch.rand((batch, 3, side, side), generator=generator)
    return x.contiguous(memory_format=torch.channels_last)


@functools.cache
def sample(name: str, weights: str, side: int, batch: int = 2) -> Sample:
    torch.set_num_threads(1)
    model = load_model(name, weights).module
    x = image(side, batch)
    with torch.inference_mode():
        y = model(x).clone()
    return Sample(name, weights, model, make_extractor(model, None, (3, side, side)), x, y)


class Small(nn.Module):
    """For 3 x 8 x 8: a bit of everything that a file can hold."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        x = self.relu(self.norm(self.conv(x))) * self.scale
        return self.fc(torch.flatten(x.mean((2, 3), keepdim=True), 1))


def equal_to_extractor(model: nn.Module, shape: tuple[int, ...]) -> None:
    """A model whose parameters are random gives the same bits when it is taken apart."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    x = torch.randn((3, *shape))
    if x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    extractor = make_extractor(model, None, shape)
    with torch.inference_mode():
        expected = model.eval()(x.clone())
        assert torch.equal(Head(extractor, extractor.cuts[-1])(x), expected)
