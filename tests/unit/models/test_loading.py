from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_sample_image

from hapi_compute.models import load_model
from swift_hapi.protocol.transform import parse_transform


def state_of(name: str, weights: str, **options) -> dict[str, torch.Tensor]:
    return load_model(name, weights, **options).module.state_dict()


def same(one: dict, other: dict) -> bool:
    return list(one) == list(other) and all(torch.equal(one[k], other[k]) for k in one)


def test_random_weights_are_a_function_of_the_seed():
    torch.manual_seed(99)
    one = state_of("resnet18", "random:7")
    after = torch.rand(1)
    torch.manual_seed(98)
    assert same(one, state_of("resnet18", "random:7"))
    assert not same(one, state_of("resnet18", "random:8"))
    torch.manual_seed(99)
    assert torch.equal(after, torch.rand(1)), "the global generator was touched"


def test_random_statistics_differ_from_the_identity():
    state = state_of("resnet18", "random:7")
    assert state["bn1.running_mean"].abs().max() > 0.01
    assert 0.5 <= state["bn1.running_var"].min() < 0.9 < 1.1 < state["bn1.running_var"].max()


def test_models_come_in_eval_mode():
    assert not any(part.training for part in load_model("resnet18", "none").module.modules())


def test_names_of_both_libraries():
    tv, timm = load_model("resnet18", "random:1"), load_model("timm/resnet18", "random:1")
    assert (tv.name, timm.name) == ("resnet18", "timm/resnet18")
    assert type(tv.module).__module__.startswith("torchvision")
    assert type(timm.module).__module__.startswith("timm")
    assert load_model("tf_efficientnet_lite0", "none").name == "timm/tf_efficientnet_lite0"


def test_timm_is_not_imported_for_torchvision_models():
    program = (
        "import sys; from hapi_compute.models import load_model; "
        "load_model('squeezenet1_1', 'random:1'); sys.exit('timm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "transform", "side"),
    [
        (
            "resnet18",
            "resize=256, crop=224, mean=(0.485 0.456 0.406), std=(0.229 0.224 0.225)",
            224,
        ),
        (
            "inception_v3",
            "resize=342, crop=299, mean=(0.5 0.5 0.5), std=(0.5 0.5 0.5)",
            299,
        ),
        (
            "efficientnet_b0",
            "resize=256, crop=224, interpolation=bicubic, mean=(0.485 0.456 0.406), "
            "std=(0.229 0.224 0.225)",
            224,
        ),
        (
            "timm/mobilenetv3_large_100",
            "resize=256, crop=224, interpolation=bicubic, mean=(0.485 0.456 0.406), "
            "std=(0.229 0.224 0.225)",
            224,
        ),
    ],
)
def test_transforms(name, transform, side):
    loaded = load_model(name, "none")
    assert parse_transform(loaded.transform) == parse_transform(transform)
    assert loaded.input_shape == (3, side, side)


def test_googlenet_gets_its_input_as_its_pretrained_form_converts_it():
    """torchvision's pretrained GoogLeNet turns ImageNet's normalisation into (x - 0.5) / 0.5."""
    loaded = load_model("googlenet", "none")
    spec = parse_transform(loaded.transform)
    assert loaded.module.transform_input is False
    assert (spec.mean, spec.std) == ((0.5,) * 3, (0.5,) * 3)


def test_package_weights_are_the_real_ones():
    loaded = load_model("timm/tf_efficientnet_lite0", "package:efficientnet-lite0")
    spec = parse_transform(loaded.transform)
    assert spec.mean == (127 / 255,) * 3 and spec.std == (128 / 255,) * 3
    flower = Image.fromarray(load_sample_image("flower.jpg")).resize((298, 256), Image.BICUBIC)
    pixels = np.asarray(flower.crop((37, 16, 37 + 224, 16 + 224)), dtype=np.float32) / 255
    x = (torch.from_numpy(pixels).permute(2, 0, 1)[None] - spec.mean[0]) / spec.std[0]
    with torch.inference_mode():
        best = loaded.module(x).softmax(1)[0].topk(3).indices.tolist()
    assert best[0] == 985, "a daisy is not seen as one"


def test_package_weights_are_for_one_model_only():
    """Its look-alike would accept the tensors and compute something else."""
    with pytest.raises(ValueError, match="tf_efficientnet_lite0, not efficientnet_lite0"):
        load_model("efficientnet_lite0", "package:efficientnet-lite0")
    with pytest.raises(ValueError, match="known: efficientnet-lite0"):
        load_model("resnet18", "package:other")


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_files(tmp_path, suffix):
    state = state_of("squeezenet1_1", "random:3", num_classes=4)
    path = tmp_path / f"model{suffix}"
    if suffix == ".pth":
        torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, path)
    else:
        save_file(state, path)
    loaded = load_model("squeezenet1_1", str(path), num_classes=4)
    assert same(loaded.module.state_dict(), state)


def test_files_of_models_that_insist_on_a_format_version(tmp_path):
    state = state_of("mnasnet0_5", "random:3")
    save_file(state, tmp_path / "m.safetensors")
    assert same(state_of("mnasnet0_5", str(tmp_path / "m.safetensors")), state)


def test_files_that_do_not_fit_list_the_keys(tmp_path):
    state = state_of("resnet18", "random:3", num_classes=4)
    del state["bn1.weight"]
    state["extra"] = torch.ones(1)
    save_file(state, tmp_path / "m.safetensors")
    with pytest.raises(ValueError) as caught:
        load_model("resnet18", str(tmp_path / "m.safetensors"))
    text = str(caught.value)
    assert "missing: bn1.weight" in text and "unknown: extra" in text
    assert "fc.bias [4] instead of [1000]" in text


def test_a_classifier_of_another_width_is_named(tmp_path):
    save_file(state_of("squeezenet1_1", "random:3", num_classes=4), tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=r"\(--classes 4\)"):
        load_model("squeezenet1_1", str(tmp_path / "m.safetensors"))


def test_checkpoints_that_hold_more(tmp_path):
    state = state_of("squeezenet1_1", "random:3")
    torch.save({"epoch": 3, "model_state_dict": state}, tmp_path / "m.pth")
    assert same(state_of("squeezenet1_1", str(tmp_path / "m.pth")), state)
    torch.save({"epoch": 3, "mine": state}, tmp_path / "m.pth")
    with pytest.raises(ValueError, match="no state dict, but epoch, mine"):
        load_model("squeezenet1_1", str(tmp_path / "m.pth"))


def test_a_whole_model_is_refused_without_torchs_advice_to_trust_it(tmp_path):
    torch.save(load_model("squeezenet1_1", "none").module, tmp_path / "m.pth")
    with pytest.raises(ValueError) as caught:
        load_model("squeezenet1_1", str(tmp_path / "m.pth"))
    text = str(caught.value)
    assert "squeezenet.SqueezeNet" in text and "state_dict()" in text
    assert "weights_only" not in text and "\n" not in text


class Payload:
    def __reduce__(self):
        return print, ("a pickle was executed",)


def test_pickles_are_not_executed(tmp_path, capsys):
    for content in (Payload(), {"state_dict": {"x": Payload()}}):
        path = tmp_path / "m.pth"
        path.write_bytes(pickle.dumps(content))
        with pytest.raises(ValueError, match="no file of plain tensors"):
            load_model("resnet18", str(path))
        torch.save(content, path)
        with pytest.raises(ValueError, match="no file of plain tensors"):
            load_model("resnet18", str(path))
    assert "executed" not in capsys.readouterr().out


def test_files_that_are_none(tmp_path):
    for name in ("m.safetensors", "m.pth"):
        (tmp_path / name).write_bytes(b"not at all")
        with pytest.raises(ValueError, match=name):
            load_model("resnet18", str(tmp_path / name))
    with pytest.raises(FileNotFoundError):
        load_model("resnet18", str(tmp_path / "nowhere.pth"))


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("resnet19", "none", "near: .*resnet18"),
        ("timm/resnet19", "none", "'timm/resnet19'; near: timm/resnet18"),
        ("my.py", "none", "path/to/file.py:FACTORY"),
        ("my:net", "none", "path/to/file.py:FACTORY"),
        ("zzzqqq", "none", "'hapi models' lists them"),
        ("timm/vit_base_r26_s32_224", "default", "timm has no weights"),
        ("resnet18", "IMAGENET1K_V9", "IMAGENET1K_V1"),
        ("resnet18", "random:", "random:SEED"),
        ("resnet18", "random:-1", "random:SEED"),
        ("resnet18", "random:x", "random:SEED"),
        ("timm/resnet18", "IMAGENET1K_V1", "timm names weights"),
    ],
)
def test_usage_errors(name, weights, message):
    with pytest.raises(ValueError, match=message):
        load_model(name, weights)


def test_library_weights_have_their_own_number_of_classes():
    with pytest.raises(ValueError, match="1000 classes, not 4"):
        load_model("resnet18", "default", num_classes=4)
