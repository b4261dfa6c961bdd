"""Models that take ids instead of numbers: a text encoder, as a user would write it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from swift_hapi.graph.extractor import load_extractor, save_extractor
from swift_hapi.graph.interpreter import Head, Tail
from swift_hapi.graph.split import build_transfer, full_state_dict, make_extractor
from swift_hapi.protocol.errors import ModelInvalid, UndecodableSample

WORDS, TOKENS, WIDTH = 50, 6, 16


class Text(nn.Module):
    def __init__(self, classes: int = 3):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.places = nn.Parameter(torch.randn(1, TOKENS, WIDTH))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, ids):
        x = self.words(ids) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


@pytest.fixture(scope="module")
def model() -> Text:
    torch.manual_seed(2)
    return Text().eval()


@pytest.fixture(scope="module")
def ids() -> torch.Tensor:
    return torch.randint(0, WORDS, (3, TOKENS), generator=torch.Generator().manual_seed(1))


def test_every_cut_of_a_text_encoder(model, ids, tmp_path):
    path = tmp_path / "text.safetensors"
    save_extractor(make_extractor(model, None, (TOKENS,), torch.int64), path)
    loaded = load_extractor(path)
    assert loaded.dtype == torch.int64
    names = [cut.name for cut in loaded.cuts]
    assert names == ["input", "words", "add", "layers_0", "layers_1", "mean", "head"]
    assert (loaded.cuts[0].dtype, loaded.cuts[0].bytes) == ("int64", 8 * TOKENS)
    assert (loaded.cuts[1].dtype, loaded.cuts[1].bytes) == ("float32", 4 * TOKENS * WIDTH)
    with torch.inference_mode():
        expected = model(ids)
    for cut in loaded.cuts:
        features = Head(loaded, cut)(ids)
        assert torch.equal(Tail(loaded, cut)(features), expected), cut.name


def test_transfer(model, ids):
    extractor, trainable = build_transfer(model, "layers.1", 5, 0, (TOKENS,), torch.int64)
    assert extractor.cuts[-1].name == "layers_1"
    plain = Text(5).eval()
    plain.load_state_dict(full_state_dict(extractor, trainable))
    with torch.no_grad():
        features = Tail(extractor, extractor.cuts[0])(ids)
        assert torch.equal(trainable.eval()(features), plain(ids))


def test_ids_are_not_numbers(model):
    with pytest.raises(ModelInvalid, match="words"):
        make_extractor(model, None, (TOKENS,))


def test_renormed_embeddings_are_refused():
    with pytest.raises(ModelInvalid, match="max_norm"):
        make_extractor(nn.Sequential(nn.Embedding(5, 4, max_norm=1.0)), None, (3,), torch.int64)


@pytest.mark.parametrize("wrong", [WORDS, -1])
def test_unknown_ids_name_the_row(model, ids, wrong):
    extractor = make_extractor(model, None, (TOKENS,), torch.int64)
    assert extractor.ids_below == WORDS
    bad = ids.clone()
    bad[1, 3] = wrong
    for part in (Head(extractor, extractor.cuts[-1]), Tail(extractor, extractor.cuts[0])):
        with pytest.raises(UndecodableSample, match=f"row 1 .*id {wrong} is none of 0 to 49"):
            part(bad)
