"""The first forward: make torch do once what it does lazily, before anybody waits for it.

The first run on the meta device alone imports a part of torch that takes seconds; with it in the
first request's way, that request would not be admitted in time.
"""

from __future__ import annotations

import torch
from torch import nn

from swift_hapi.engine.device import Device
from swift_hapi.graph import ir
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.memory import per_sample_bytes
from swift_hapi.graph.modules import spec_of

_SHAPE = (3, 32, 32)


def tiny_head(device: Device) -> Head:
    """A small network of the usual layers, gone through all that a loaded file goes through.
    Blocking."""
    layers = {
        "conv": nn.Conv2d(3, 8, 3),
        "norm": nn.BatchNorm2d(8),
        "relu": nn.ReLU(inplace=True),
        "pool": nn.AdaptiveAvgPool2d(1),
    }
    nodes = [ir.Node("input", ir.INPUT, "")]
    tensors = {}
    for path, layer in layers.items():
        nodes.append(ir.Node(f"{path}_1", ir.MODULE, path, (ir.Ref(nodes[-1].name),)))
        tensors |= {f"{path}.{key}": value for key, value in layer.eval().state_dict().items()}
    specs = {path: spec_of(layer, path) for path, layer in layers.items()}
    extractor = Extractor(ir.Graph(tuple(nodes), specs, nodes[-1].name), tensors, _SHAPE)
    last = extractor.cuts[-1]
    per_sample_bytes(extractor, last)
    return Head(device.take(extractor), last)


def first_forward(device: Device, head: Head) -> None:
    """Start the thread team, and oneDNN or CUDA, in the thread that runs this. Blocking."""
    device.run(head, torch.zeros(2, *_SHAPE))
