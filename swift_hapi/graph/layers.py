"""Layers that are no part of torch.nn but occur in frozen parts; each follows its published
definition, so that a graph names a layer of ours instead of a class of another library.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Permute(nn.Module):
    """``x.permute(dims)``."""

    def __init__(self, dims: tuple[int, ...]):
        super().__init__()
        self.dims = tuple(dims)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(self.dims)


def pad_same(
    x: torch.Tensor,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
    value: float = 0.0,
) -> torch.Tensor:
    """Pad [n, c, h, w] as TensorFlow's ``SAME`` does: output size is ceil(input / stride), and
    the odd pixel goes to the bottom and the right."""
    totals = []
    for size, k, s, d in zip(x.shape[-2:], kernel, stride, dilation, strict=True):
        reach = d * (k - 1) + 1
        totals.append(max((-(-size // s) - 1) * s + reach - size, 0))
    high, wide = totals
    if not (high or wide):
        return x
    pads = (wide // 2, wide - wide // 2, high // 2, high - high // 2)
    return F.pad(x, pads, value=value)


class Conv2dSame(nn.Conv2d):
    """Convolution with ``SAME`` padding computed from the input's size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = pad_same(x, self.kernel_size, self.stride, self.dilation)
        return F.conv2d(
            x, self.weight, self.bias, self.stride, (0, 0), self.dilation, self.groups
        )


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


class MaxPool2dSame(nn.MaxPool2d):
    """Max pooling with ``SAME`` padding; the padding never wins."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kernel, stride, dilation = map(_pair, (self.kernel_size, self.stride, self.dilation))
        x = pad_same(x, kernel, stride, dilation, value=-float("inf"))
        return F.max_pool2d(x, kernel, stride, (0, 0), dilation, self.ceil_mode)


class AvgPool2dSame(nn.AvgPool2d):
    """Average pooling with ``SAME`` padding by zeros."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kernel, stride = map(_pair, (self.kernel_size, self.stride))
        x = pad_same(x, kernel, stride)
        return F.avg_pool2d(x, kernel, stride, (0, 0), self.ceil_mode, self.count_include_pad)
