"""Samples that are ids: a text encoder's tokens as stored arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from swift_hapi.graph.extractor import load_extractor, save_extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol import payload
from tests.unit.engine.client import ask_expecting
from tests.unit.engine.conftest import BATCH, feature_headers, npy, post, tar

WORDS, TOKENS = 40, 12


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, ids):
        return self.layer(self.words(ids)).mean(1)


@pytest.fixture(scope="module")
def text(engine, tmp_path_factory):
    torch.manual_seed(4)
    path = tmp_path_factory.mktemp("text") / "text.safetensors"
    digest = save_extractor(make_extractor(Text().eval(), None, (TOKENS,), torch.int64), path)
    hex_ = digest.removeprefix("sha256:")
    answer = ask_expecting(engine.socket, "PUT", f"/v1/models/{hex_}", path.read_bytes())
    assert answer.status == 201
    return load_extractor(path)


def ids(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, WORDS, (count, TOKENS))


def shard(rows: np.ndarray) -> bytes:
    return tar([(f"{i}.npy", npy(row)) for i, row in enumerate(rows)])


def headers(text, split: str, **more) -> dict[str, str]:
    return feature_headers(text.digest, split, X_Hapi_Transform=None, **more)


def test_features_of_tokens(engine, text):
    rows = ids(6)
    for split in ("words", "layer", "mean"):
        answer = post(engine, shard(rows), headers(text, split))
        assert answer.status == 200, answer.body
        head = Head(text, text.resolve(split))
        parts = [head(torch.from_numpy(rows[i : i + BATCH])) for i in range(0, 6, BATCH)]
        assert np.array_equal(payload.decode(answer.body).features, torch.cat(parts).numpy())


def test_unknown_ids_are_the_samples_fault(engine, text):
    rows = ids(3)
    rows[1, 5] = WORDS
    answer = post(engine, shard(rows), headers(text, "mean"))
    assert (answer.status, answer.problem) == (422, "undecodable-sample")
    assert answer.json()["sample"] == 1 and "0 to 39" in answer.json()["reason"]
    answer = post(engine, shard(rows), headers(text, "mean", X_Hapi_On_Error="report"))
    found = payload.decode(answer.body)
    assert found.index.tolist() == [0, 2] and found.errors[0].index == 1


def test_other_arrays_are_refused(engine, text):
    answer = post(engine, shard(ids(2).astype(np.float32)), headers(text, "mean"))
    assert (answer.status, answer.problem) == (422, "undecodable-sample")
    assert "float32[12] where int64[12] is due" in answer.json()["reason"]


def test_ids_themselves_come_as_they_are(engine, text):
    answer = post(engine, shard(ids(2)), headers(text, "input"))
    found = payload.decode(answer.body).features
    assert found.dtype == np.int64 and np.array_equal(found, ids(2))
