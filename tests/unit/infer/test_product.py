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
from swift_hapi.graph.interpreter import Tail
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


TASK = """
import torch
from torch import nn
from hapi_compute.train.hook import TrainingTask

class Task(TrainingTask):
    def head(self, rest, features, classes):
        return nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.Linear(features.numel(), classes))

    def scores(self, outputs):
        return -outputs

def make():
    return Task()
"""


@pytest.fixture
def own_head(run, tmp_path):
    """A run with a head of its own: (directory, the head)."""
    torch.manual_seed(1)
    module = load_model("resnet18", "random:1").module
    extractor, _ = build_transfer(module, "layer3", 3, 5, SHAPE)
    (tmp_path / "task.py").write_text(TASK)
    size = int(np.prod(extractor.cuts[-1].shape))
    head = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Identity(), torch.nn.Linear(size, 3))
    state = {n: t for n, t in extractor.tensors.items() if n not in extractor.constants}
    state |= {f"head.{n}": t for n, t in head.state_dict().items()}
    safetensors.torch.save_file(
        {n: t.contiguous() for n, t in state.items()}, tmp_path / "model.safetensors"
    )
    description = json.loads((run[0] / "model.json").read_text()) | {
        "head": "head.", "task": f"{tmp_path}/task.py:make", "extractor": extractor.digest,
    }  # fmt: skip
    (tmp_path / "model.json").write_text(json.dumps(description))
    return tmp_path, extractor, head


def test_a_head_that_a_task_made(own_head, store, tars):
    directory, extractor, head = own_head
    with pytest.raises(DatasetError, match="task.py:make; --allow-code"):
        load(str(directory))
    product = load(str(directory), allow_code=True)
    assert product.frozen.digest == extractor.digest and product.whole is None
    for split in ("raw", "add_2", "layer3"):
        place = None if split == "raw" else product.frozen.cuts[-1]
        if split == "add_2":
            place = product.cut("add_2")
        cut = extractor.resolve("0" if place is None else place.name)
        features = torch.randn(2, *cut.shape)
        with torch.inference_mode():
            expected = -head(Tail(extractor, cut, inference=True)(features))
        torch.testing.assert_close(product.rest(place)(features), expected)
    config = ClassifyConfig(
        ScanConfig("swift://c/d", threads=1, decode_threads=1), str(directory), allow_code=True
    )
    with classifier(config, store, labelled=True) as made:
        assert evaluate(made).samples == 8


def test_a_head_of_other_tensors(own_head):
    directory, extractor, _ = own_head
    path = directory / "model.safetensors"
    state = safetensors.torch.load_file(path)
    for change, why in (
        ({"head.2.bias": torch.zeros(4)}, "size mismatch"),
        ({"more.weight": torch.zeros(1)}, "'more.weight' is no tensor of the model"),
        ({"conv1.weight": torch.zeros_like(state["conv1.weight"])}, "does not hold the frozen"),
    ):
        safetensors.torch.save_file(state | change, path)
        with pytest.raises(DatasetError, match=why):
            load(str(directory), allow_code=True)
    path.write_bytes(b"nonsense")
    with pytest.raises(DatasetError, match="no safetensors file"):
        load(str(directory), allow_code=True)


def test_a_model_of_ones_own_is_code_too(run, tmp_path):
    description = json.loads((run[0] / "model.json").read_text())
    text = json.dumps(description | {"model": f"{tmp_path}/evil.py:make"})
    (tmp_path / "evil.py").write_text("raise SystemExit('executed')")
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(DatasetError, match="evil.py:make; --allow-code"):
        load(str(tmp_path))
