from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hapi_compute.models import load_model
from swift_hapi.graph.interpreter import Head, Tail
from swift_hapi.graph.split import build_transfer, full_state_dict, make_extractor
from swift_hapi.protocol.errors import BadCut, ModelInvalid
from tests.unit.graph.models import image

CASES = [
    ("resnet18", "random:1", "layer4", 64),
    ("vit_b_16", "random:1", "encoder", 224),
    ("mobilenet_v3_large", "random:1", "features.12", 64),
    ("tf_efficientnet_lite0", "package:efficientnet-lite0", "global_pool", 96),
    ("squeezenet1_1", "random:1", "features", 64),
    ("googlenet", "random:1", "avgpool", 64),
    ("mnasnet0_5", "random:1", "5", 64),
]


def frozen(extractor, x: torch.Tensor) -> torch.Tensor:
    """Head up to somewhere in the middle, tail from there."""
    cut = extractor.cuts[len(extractor.cuts) // 2]
    return Tail(extractor, cut)(Head(extractor, cut)(x).contiguous())


@pytest.mark.parametrize(("name", "weights", "freeze_at", "side"), CASES)
def test_the_whole_is_the_plain_architecture(name, weights, freeze_at, side):
    loaded = load_model(name, weights)
    before = {key: value.clone() for key, value in loaded.module.state_dict().items()}
    extractor, part = build_transfer(loaded.module, freeze_at, 7, 11, (3, side, side))
    state = full_state_dict(extractor, part)

    plain = load_model(name, "none", num_classes=7).module
    assert list(state) == list(plain.state_dict())
    plain.load_state_dict(state, strict=True)
    x = image(side, 1)
    part.eval()
    with torch.inference_mode():
        expected = plain.eval()(x)
        assert expected.shape == (1, 7)
        assert torch.equal(part(frozen(extractor, x)), expected)

    assert all(torch.equal(v, before[k]) for k, v in loaded.module.state_dict().items())
    trained = {name for name, _ in part.named_parameters()}
    assert trained and trained <= set(state)
    assert not trained & set(extractor.tensors)


def test_module_names_freeze_at_their_output():
    model = load_model("resnet18", "random:1").module
    for freeze_at, cut in {
        "layer4": "layer4_1_relu_1",
        "layer4.0": "layer4_0_relu_1",
        "layer3": "layer3_1_relu_1",
        "maxpool": "maxpool",
        "avgpool": "avgpool",
        "add_6": "add_6",
        "0": "input",
    }.items():
        assert make_extractor(model, freeze_at, (3, 64, 64)).cuts[-1].name == cut


def test_freezing_at_the_input_trains_everything():
    model = load_model("resnet18", "random:1").module
    extractor, part = build_transfer(model, "input", 3, 0, (3, 64, 64))
    assert not extractor.tensors and len(extractor.cuts) == 1
    assert {n for n, _ in part.named_parameters()} == {n for n, _ in model.named_parameters()}


@pytest.mark.parametrize("freeze_at", ["layer9", "layer1.0.conv1", "999", ""])
def test_bad_freeze_points(freeze_at):
    model = load_model("resnet18", "random:1").module
    with pytest.raises(BadCut):
        build_transfer(model, freeze_at, 3, 0, (3, 64, 64))


def test_no_classifier_left():
    model = load_model("resnet18", "random:1").module
    with pytest.raises(ModelInvalid, match="classifier"):
        build_transfer(model, "fc", 3, 0, (3, 64, 64))
    _, part = build_transfer(model, "fc", None, 0, (3, 64, 64))
    assert not list(part.parameters())


def test_new_layer_depends_on_the_seed_only():
    model = load_model("resnet18", "random:1").module
    weights = []
    for disturbance, seed in ((1, 5), (2, 5), (1, 6)):
        torch.manual_seed(disturbance)
        _, part = build_transfer(model, "avgpool", 4, seed, (3, 64, 64))
        weights.append(part.fc.weight.detach())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    bound = 512**-0.5
    assert weights[0].abs().max() <= bound and weights[0].std() > bound / 3


def test_none_keeps_the_classifier():
    model = load_model("resnet18", "random:1").module
    _, part = build_transfer(model, "avgpool", None, 0, (3, 64, 64))
    assert torch.equal(part.fc.weight, model.fc.weight)
    assert part.fc.weight is not model.fc.weight


def test_extractor_does_not_follow_the_model():
    model = load_model("resnet18", "random:1").module
    extractor = make_extractor(model, "layer1", (3, 64, 64))
    digest = extractor.digest
    with torch.no_grad():
        model.conv1.weight.zero_()
    assert extractor.tensors["conv1.weight"].abs().sum() > 0
    assert make_extractor(model, "layer1", (3, 64, 64)).digest != digest


def test_training_moves_only_the_trainable_part():
    model = load_model("resnet18", "random:1").module
    extractor, part = build_transfer(model, "layer3", 4, 0, (3, 64, 64))
    digest, before = extractor.digest, full_state_dict(extractor, part)
    before = {name: tensor.clone() for name, tensor in before.items()}
    features = frozen(extractor, image(64, 4))
    optimiser = torch.optim.SGD(part.parameters(), lr=0.1)
    part.train()
    loss = nn.functional.cross_entropy(part(features), torch.arange(4))
    loss.backward()
    optimiser.step()
    after = full_state_dict(extractor, part)
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    assert {"fc.weight", "layer4.0.conv1.weight", "layer4.0.bn1.running_mean"} <= moved
    assert all(name.startswith(("layer4", "fc")) for name in moved)
    extractor._digest = None
    assert extractor.digest == digest


def test_copies_of_the_trainable_part_are_independent():
    model = load_model("resnet18", "random:1").module
    extractor, part = build_transfer(model, "layer4", 4, 0, (3, 64, 64))
    features = frozen(extractor, image(64))
    part.eval()
    with torch.no_grad():
        expected = part(features)
        other = copy.deepcopy(part)
        assert torch.equal(other(features), expected)
        for parameter in part.parameters():
            parameter.zero_()
        assert torch.equal(other(features), expected)
        assert not torch.equal(part(features), expected)


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 64)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(64, 3)

    def forward(self, x):
        x = self.drop(self.body(x))
        return self.fc(nn.functional.dropout(x, 0.5, self.training))


def test_dropout_follows_the_mode_of_the_trainable_part():
    model = Dropping()
    extractor, part = build_transfer(model, "body", None, 0, (6,))
    features = frozen(extractor, torch.rand(2, 6))
    assert part.training and part.drop.training
    assert not torch.equal(part(features), part(features))
    part.eval()
    assert torch.equal(part(features), part(features))
    # The functional one alone, too.
    part.train()
    part.drop.eval()
    assert not torch.equal(part(features), part(features))


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 6)
        self.relu = nn.ReLU(inplace=True)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = self.body(x)
        y = self.relu(x)
        return self.fc(x + y)  # x was overwritten: this is 2 * relu(body(x))


def test_in_place_operations_on_the_boundary():
    model = InPlace().eval()
    x = torch.rand(5, 6) - 0.5
    extractor, part = build_transfer(model, "body", None, 0, (6,))
    part.eval()
    features = Head(extractor, extractor.cuts[-1])(x).clone()
    before = features.clone()
    with torch.no_grad():
        assert torch.equal(part(features), model(x))
    assert torch.equal(features, before)
    whole = make_extractor(model, None, (6,))
    for cut in whole.cuts:
        assert torch.equal(Tail(whole, cut)(Head(whole, cut)(x)), model(x).detach())


class OverwritesAView(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        x = self.fc(x)
        view = x.reshape(-1, 2, 3)
        view.add_(1)
        return x * 2


def test_writes_that_the_data_flow_does_not_show_are_refused():
    with pytest.raises(ModelInvalid, match="add_"):
        make_extractor(OverwritesAView(), None, (6,))


class SharesAcross(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = self.layer(x).relu()
        return self.fc(self.layer(x))


def test_weights_used_on_both_sides_are_refused():
    with pytest.raises(ModelInvalid, match=r"layer\.weight"):
        build_transfer(SharesAcross(), "relu", 2, 0, (6,))


class OddTail(nn.Module):
    """What comes after the freeze point need not fit into a file."""

    class Own(nn.Linear):
        def forward(self, x):
            return super().forward(x).expm1()

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 6)
        self.encoder = nn.LSTM(6, 6, batch_first=True)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = self.encoder(self.body(x).unsqueeze(1))[0]
        return self.fc(torch.special.expit(x.flatten(1)))


def test_the_trainable_part_may_hold_anything():
    model = OddTail()
    extractor, part = build_transfer(model, "body", 4, 0, (6,))
    assert part(frozen(extractor, torch.rand(2, 6))).shape == (2, 4)
    with pytest.raises(ModelInvalid, match="encoder.*LSTM"):
        make_extractor(model, None, (6,))


def test_parts_of_different_models_do_not_mix():
    model = load_model("resnet18", "random:1").module
    shallow, _ = build_transfer(model, "layer2", 4, 0, (3, 64, 64))
    _, deep = build_transfer(model, "layer4", 4, 0, (3, 64, 64))
    with pytest.raises(ModelInvalid, match="layer3"):
        full_state_dict(shallow, deep)
