"""Features over the socket: equal to a local run, and everything the response says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from swift_hapi.graph.interpreter import Head
from swift_hapi.protocol import payload
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import parse_transform
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import read_shard
from tests.unit.engine.client import ask_expecting
from tests.unit.engine.conftest import TRANSFORM, feature_headers, shard


def local(model, split: str, body: bytes, batch: int, wanted=None, transform=TRANSFORM):
    """What the engine should answer, computed here."""
    spec = parse_transform(transform) if transform else None
    samples = read_shard(body, "some/shard-0.tar", Limits(), wanted).samples
    decoded = np.stack([decode_sample(sample, spec, Limits()) for sample in samples])
    cuts = model.extractor.cuts_for(decoded.shape[1:])
    head = Head(model.extractor, cuts[model.extractor.resolve(split).index])
    rows = [
        head(torch.from_numpy(decoded[i : i + batch])).numpy()
        for i in range(0, len(decoded), batch)
    ]
    return np.concatenate(rows)


@pytest.mark.parametrize("split", ["input", "maxpool", "layer2_0_relu_1", "avgpool", "7"])
def test_same_bits_as_local(engine, models, split):
    body = shard(10)
    answer = ask_expecting(
        engine.socket, "POST", "/v1/features", body, feature_headers(models[0].digest, split)
    )
    assert answer.status == 200, answer
    features = payload.decode(answer.body)
    assert np.array_equal(features.features, local(models[0], split, body, 4))
    assert features.index.tolist() == list(range(10))
    assert features.label.tolist() == [i % 3 for i in range(10)]
    assert features.keys == tuple(f"{i:04d}" for i in range(10))
    assert features.cut == models[0].extractor.resolve(split).name
    assert features.model == models[0].digest
    assert features.errors == ()
