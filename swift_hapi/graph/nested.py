"""Tensors among the arguments and results of an operation."""

from __future__ import annotations

from collections.abc import Iterator

import torch


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Those within lists, tuples and dicts too, in order."""
    if torch.is_tensor(value):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
