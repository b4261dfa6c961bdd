"""Whatever the cut: head and tail together are the plain model, bit for bit, also after a file."""

from __future__ import annotations

import gc

import pytest
import torch
from safetensors.torch import load_file

from swift_hapi.graph.extractor import load_extractor, save_extractor
from swift_hapi.graph.interpreter import Head, Tail
from tests.unit.graph.models import sample

MODELS = [
    ("resnet18", "random:1", 64),
    ("alexnet", "random:1", 64),
    ("mobilenet_v3_large", "random:1", 64),
    ("tf_efficientnet_lite0", "package:efficientnet-lite0", 96),
    ("squeezenet1_1", "random:1", 64),
    ("densenet121", "random:1", 64),
    ("shufflenet_v2_x0_5", "random:1", 64),
    ("swin_t", "random:1", 64),
    ("vit_b_16", "random:1", 224),
]


@pytest.mark.parametrize(("name", "weights", "side"), MODELS, ids=[m[0] for m in MODELS])
def test_head_then_tail_is_the_model(name, weights, side, tmp_path):
    batch = 1 if name == "vit_b_16" else 2
    made = sample(name, weights, side, batch)
    path = tmp_path / "x.safetensors"
    digest = save_extractor(made.extractor, path)
    loaded = load_extractor(path)
    assert loaded.digest == digest == made.extractor.digest
    assert loaded.cuts == made.extractor.cuts
    assert set(loaded.tensors) == set(load_file(path))

    few = {0, 1, len(loaded.cuts) // 2, len(loaded.cuts) - 1}
    chosen = [cut for cut in loaded.cuts if cut.pareto or cut.index in few]
    assert len(chosen) >= 4
    for cut in chosen:
        # As the features travel: contiguous, and memory of their own.
        features = Head(loaded, cut)(made.x.contiguous()).contiguous().clone()
        assert features.shape == (batch, *cut.shape)
        before = features.clone()
        assert torch.equal(Tail(loaded, cut)(features), made.y), cut.name
        assert torch.equal(features, before), f"the tail overwrote its input at {cut.name}"
    if name == "vit_b_16":
        sample.cache_clear()
        gc.collect()


def test_state_dict_names_are_kept(resnet):
    assert set(resnet.extractor.tensors) == set(resnet.model.state_dict())
    assert not resnet.extractor.constants


def test_head_leaves_its_input_alone(resnet):
    before = resnet.x.clone()
    for cut in resnet.extractor.cuts[:4]:
        Head(resnet.extractor, cut)(resnet.x)
    assert torch.equal(resnet.x, before)


def test_results_do_not_hang_on_the_caller_having_gradients_on(resnet):
    cut = resnet.extractor.resolve("layer4_1_relu_1")
    x = resnet.x.clone().requires_grad_()
    features = Head(resnet.extractor, cut)(x)
    assert not features.requires_grad
    out = Tail(resnet.extractor, cut)(features)
    assert not out.requires_grad
    # The frozen result must be fit to be trained on.
    weight = torch.ones(out.shape[1], requires_grad=True)
    (out * weight).sum().backward()
    assert weight.grad is not None


def test_other_input_shapes_and_batches_run(resnet):
    cut = resnet.extractor.resolve("layer3_1_relu_1")
    wide = resnet.extractor.cuts_for((3, 96, 64))
    assert [c.name for c in wide] == [c.name for c in resnet.extractor.cuts]
    features = Head(resnet.extractor, cut)(torch.rand(1, 3, 96, 64))
    assert features.shape == (1, *wide[cut.index].shape) == (1, 256, 6, 4)
