"""Extractors that are saved and loaded: always the same bytes, whole or not at all."""

from __future__ import annotations

import hashlib
import os

import pytest
import torch
from torch import nn

from swift_hapi.graph.extractor import load_extractor, save_extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.errors import ModelInvalid
from tests.unit.graph.models import Small


def test_same_model_same_bytes(small, tmp_path):
    torch.manual_seed(3)
    again = make_extractor(Small().eval(), None, (3, 8, 8))
    digest = save_extractor(again, tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == small
    assert digest == f"sha256:{hashlib.sha256(small).hexdigest()}"
    # A file that was read gives the same bytes again.
    loaded = load_extractor(small)
    assert loaded.digest == digest
    save_extractor(loaded, tmp_path / "c.safetensors")
    assert (tmp_path / "c.safetensors").read_bytes() == small
    assert os.listdir(tmp_path) and not [n for n in os.listdir(tmp_path) if n.startswith(".")]


def test_other_weights_other_digest(small):
    torch.manual_seed(4)
    other = make_extractor(Small().eval(), None, (3, 8, 8))
    assert other.digest != load_extractor(small).digest


def test_nothing_remains_of_a_failed_write(small, tmp_path, monkeypatch):
    target = tmp_path / "x.safetensors"
    target.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_extractor(load_extractor(small), target)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.safetensors"]


def test_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_extractor(tmp_path / "nowhere")


def test_index_out_of_range_in_constants_is_refused_at_load(tmp_path):
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.arange(6.0))
            self.register_buffer("index", torch.tensor([1, 5]))

        def forward(self, x):
            return x + self.table[self.index]

    model = Looks().eval()
    extractor = make_extractor(model, None, (2,))
    with torch.inference_mode():
        x = torch.rand(3, 2)
        assert torch.equal(Head(extractor, extractor.cuts[-1])(x), model(x))
    extractor.tensors["index"].fill_(6)
    path = tmp_path / "x.safetensors"
    save_extractor(extractor, path)
    with pytest.raises(ModelInvalid, match="getitem"):
        load_extractor(path)
