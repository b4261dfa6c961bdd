"""Find the layer(s) that make a model's logits, and put new ones of another width there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from swift_hapi.graph import ir
from swift_hapi.graph.ir import Node
from swift_hapi.protocol.errors import ModelInvalid


def find_classifier(
    nodes: Sequence[Node], output: str, modules: Mapping[str, nn.Module]
) -> list[str]:
    """Paths of the last linear layers (or 1x1 convolutions) on every way to the output; several
    for models that average heads.

    :raises ModelInvalid: some way to the output has none
    """
    by_name = {node.name: node for node in nodes}
    found: dict[str, None] = {}
    seen: set[str] = set()
    todo = [output]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        node = by_name.get(name)
        if node is None or node.op == ir.ATTR:
            raise ModelInvalid("there is no classifier layer after the freeze point")
        module = modules.get(node.target) if node.op == ir.MODULE else None
        if is_classifier(module):
            found[node.target] = None
        elif module is not None and next(module.parameters(), None) is not None:
            raise ModelInvalid(f"the last layer, '{node.target}', is no linear classifier")
        else:
            todo.extend(node.refs())
    return list(found)


def is_classifier(module: nn.Module | None) -> bool:
    if isinstance(module, nn.Conv2d):
        return set(module.kernel_size) == {1} and module.groups == 1
    return isinstance(module, nn.Linear)


def width(layer: nn.Module) -> int:
    return layer.out_channels if isinstance(layer, nn.Conv2d) else layer.out_features


def new_layer(old: nn.Module, num_classes: int, generator: torch.Generator) -> nn.Module:
    """A layer like ``old`` with ``num_classes`` outputs, weights and bias uniform within
    1/sqrt(inputs) as torch initialises them, drawn from ``generator``."""
    bias = old.bias is not None
    if isinstance(old, nn.Conv2d):
        inputs = old.in_channels
        layer = nn.Conv2d(inputs, num_classes, 1, old.stride, old.padding, bias=bias)
    else:
        inputs = old.in_features
        layer = nn.Linear(inputs, num_classes, bias=bias)
    bound = 1 / math.sqrt(inputs)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return layer.train(old.training)
