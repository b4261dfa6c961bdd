"""A trained model over a store without a filter; with one, see tests/functional."""

from __future__ import annotations

import json

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision

from hapi_compute.data.errors import DatasetError, LabelMissing
from hapi_compute.infer.classify import ClassifyConfig, classifier
from hapi_compute.infer.config import ScanConfig
from hapi_compute.infer.evaluate import evaluate
from hapi_compute.infer.product import load
from hapi_compute.models import load_model
from swift_hapi.graph.split import build_transfer, full_state_dict
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import parse_transform
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import read_shard

TRANSFORM = "resize=48x48, mean=(0.5), std=(0.5)"
SHAPE = (3, 48, 48)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(directory, digest of the extractor) of a run whose new layer has never been trained."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("run")
    module = load_model("resnet18", "random:1").module
    extractor, trainable = build_transfer(module, "layer3", 3, 5, SHAPE)
    state = {k: v.contiguous() for k, v in full_state_dict(extractor, trainable).items()}
    safetensors.torch.save_file(state, out / "model.safetensors", {"format": "pt"})
    description = {
        "format": "hapi-model", "version": 1, "model": "resnet18", "freeze_at": "layer3",
        "num_classes": 3, "classes": ["ant", "bee", "cat"], "transform": TRANSFORM,
        "input_shape": list(SHAPE),
    }  # fmt: skip
    (out / "model.json").write_text(json.dumps(description))
    return out, extractor.digest


def config(run, split: str = "auto", **scan) -> ClassifyConfig:
    options = {"threads": 1, "decode_threads": 1, "micro_batch": 2}
    return ClassifyConfig(ScanConfig("swift://c/d", **options | scan), str(run[0]), split)


def test_the_frozen_part_keeps_its_digest(run):
    product = load(str(run[0]))
    assert product.frozen.digest == run[1]
    assert product.name_of(1) == "bee" and product.name_of(7) == "7"
    assert product.cut("add_2").name == "add_2"
    with pytest.raises(ValueError, match="split='fc'"):
        product.cut("fc")


@pytest.mark.parametrize("split", ["auto", "raw", "add_2"])
def test_logits_are_those_of_the_plain_model(run, swift, store, tars, split):
    plain = torchvision.models.resnet18(num_classes=3).eval()
    plain.load_state_dict(safetensors.torch.load_file(run[0] / "model.safetensors"))
    spec = parse_transform(TRANSFORM)
    with classifier(config(run, split), store, labelled=False) as made:
        found = list(made.answers())
    assert made.split == ("add_2" if split == "add_2" else "raw")
    assert made.fallbacks == (3 if split == "add_2" else 0)
    assert [a.shard for a in found] == ["d/0.tar", "d/1.tar", "d/2.tar"]
    for answers in found:
        samples = read_shard(swift.containers["c"][answers.shard].body, "x", Limits()).samples
        images = np.stack([decode_sample(s, spec, Limits()) for s in samples])
        with torch.inference_mode():
            expected = plain(torch.from_numpy(images)).numpy()
        assert answers.keys == tuple(s.key for s in samples)
        assert answers.labels.tolist() == [s.label for s in samples]
        assert np.abs(answers.logits - expected).max() <= 1e-5 * np.abs(expected).max()


def test_foreign_tars_are_numbered_as_the_product_is(run, store, tars):
    with classifier(config(run), store, labelled=True) as made:
        found = evaluate(made)
    assert found.samples == 8 and found.classes == ("ant", "bee", "cat")
    assert found.confusion.sum(axis=1).tolist() == [3, 3, 2]


def test_a_label_that_the_product_does_not_know(run, swift, store, tars, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("".join(f"k/{n},{name}\n" for n, name in enumerate("abcabcab")))
    with pytest.raises(DatasetError, match="label 'a' of 'k/0' is none of the 3 classes"):
        with classifier(config(run, labels=str(table)), store, labelled=True):
            pass
    table.write_text("".join(f"k/{n},{n % 4}\n" for n in range(8)))
    with pytest.raises(DatasetError, match="label '3' of 'k/3' is none of the 3 classes"):
        with classifier(config(run, labels=str(table)), store, labelled=True):
            pass
    table.write_text("".join(f"k/{n},{'ant' if n else 'cat'}\n" for n in range(7)))
    with classifier(config(run, labels=str(table)), store, labelled=True) as made:
        with pytest.raises(LabelMissing, match="c/d/2.tar: sample 'k/7' is not in"):
            evaluate(made)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"format": "hapi-model", "version": 2}', b"\xff"]
)
def test_no_product(tmp_path, text):
    with pytest.raises(OSError):
        load(str(tmp_path))
    (tmp_path / "model.json").write_bytes(text)
    with pytest.raises(DatasetError, match="model.json: is no"):
        load(str(tmp_path))
