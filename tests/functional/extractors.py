"""Small real extractor files and shards, and what their features must be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from swift_hapi.graph.extractor import Extractor, load_extractor, save_extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import parse_transform
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import read_shard
from tests.unit.samples.builders import encode, picture, tar

SIDE = 32
TRANSFORM = f"resize=40, crop={SIDE}, mean=(0.5 0.4 0.3), std=(0.2 0.3 0.4)"
#: The engine's default micro-batch.
MICRO_BATCH = 32


@dataclass(frozen=True)
class Model:
    """An extractor, its file's bytes and its digest."""

    extractor: Extractor
    data: bytes
    digest: str

    @property
    def hex(self) -> str:
        return self.digest.removeprefix("sha256:")

    @property
    def last_cut(self) -> str:
        return self.extractor.cuts_for((3, SIDE, SIDE))[-1].name


def build(seed: int, directory, width: int = 8, side: int = SIDE) -> Model:
    """A few convolutions with random weights for ``side`` x ``side`` images."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ).eval()
    path = directory / f"model-{seed}-{width}.safetensors"
    digest = save_extractor(make_extractor(net, None, (3, side, side)), path)
    data = path.read_bytes()
    return Model(load_extractor(data), data, digest)


def shard(count: int, seed: int = 0) -> bytes:
    """A tar of labelled JPEGs in WebDataset layout."""
    members = []
    for i in range(count):
        members.append((f"{i:03d}.jpg", encode(picture(seed=100 * seed + i))))
        members.append((f"{i:03d}.cls", str(i % 3).encode()))
    return tar(members)


def features(model: Model, split: str, data: bytes, transform: str = TRANSFORM) -> np.ndarray:
    """What the engine must answer, computed here with the same micro-batches."""
    torch.set_num_threads(1)
    spec = parse_transform(transform)
    samples = read_shard(data, "object", Limits(), None).samples
    images = np.stack([decode_sample(sample, spec, Limits()) for sample in samples])
    cuts = model.extractor.cuts_for(images.shape[1:])
    head = Head(model.extractor, cuts[model.extractor.resolve(split).index])
    pieces = range(0, len(images), MICRO_BATCH)
    with torch.inference_mode():
        rows = [head(torch.from_numpy(images[i : i + MICRO_BATCH])).numpy() for i in pieces]
    return np.concatenate(rows)
