"""A user's own model, in a file of his own."""

from __future__ import annotations

import json

import pytest
import torch

from hapi_compute.cli import exit_codes
from hapi_compute.cli.main import main
from hapi_compute.models import load_model
from hapi_compute.models.user import is_reference
from swift_hapi.graph.extractor import load_extractor

SOURCE = """
import torch
from torch import nn
from neighbour import WIDTH

def plain():
    return nn.Sequential(nn.Conv2d(3, WIDTH, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))

def sized(num_classes=7):
    model = nn.Sequential(nn.Conv2d(3, WIDTH, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(WIDTH, num_classes))
    model.hapi_transform = "resize=40, crop=32x48"
    return model

def words():
    model = nn.Sequential(nn.Embedding(9, WIDTH), nn.Flatten(), nn.Linear(5 * WIDTH, 3))
    model.hapi_input_shape, model.hapi_input_dtype = (5,), "int64"
    return model

def odd():
    model = nn.Linear(3, 3)
    model.hapi_input_dtype = "float16"
    return model

def no_module():
    return 3

def fails():
    raise RuntimeError("no GPU here")

def half():
    return nn.Linear(3, 3).half()

number = 3
made = nn.Linear(3, 3)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    directory = tmp_path_factory.mktemp("own models")
    (directory / "neighbour.py").write_text("WIDTH = 6\n")
    path = directory / "nets.py"
    path.write_text(SOURCE)
    return path


def test_references():
    assert is_reference("a/b c.py:make") and is_reference("./x.py:f_1")
    for other in ("resnet18", "timm/x", "a.py", "a.py:", "a.py:1", "a.py:b.c"):
        assert not is_reference(other)


def test_what_a_model_says_of_itself(path):
    sized = load_model(f"{path}:sized", "default", 4)
    assert (sized.transform, sized.input_shape) == ("resize=40, crop=32x48", (3, 32, 48))
    assert sized.module[-1].out_features == 4 and not sized.module.training
    words = load_model(f"{path}:words", "none")
    assert (words.transform, words.input_shape, words.dtype) == (None, (5,), torch.int64)


def test_random_weights_are_a_function_of_the_seed(path):
    one, same, other = (load_model(f"{path}:sized", f"random:{n}").module for n in (1, 1, 2))
    assert torch.equal(one[0].weight, same[0].weight)
    assert not torch.equal(one[0].weight, other[0].weight)


def test_weights_from_a_file(path, tmp_path):
    trained = load_model(f"{path}:sized", "random:5", 3).module
    torch.save(trained.state_dict(), tmp_path / "w.pth")
    again = load_model(f"{path}:sized", str(tmp_path / "w.pth"), 3).module
    assert torch.equal(again[-1].weight, trained[-1].weight)
    with pytest.raises(ValueError, match=r"of another shape: 3.weight \[3, 6\]"):
        load_model(f"{path}:sized", str(tmp_path / "w.pth"))


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("nothing", "no function 'nothing'"),
        ("number", "no function 'number'"),
        ("no_module", "returned int"),
        ("fails", "RuntimeError: no GPU here"),
        ("made", "is a module: want a function"),
        ("half", "torch.float16, want float32"),
        ("odd", "hapi_input_dtype='float16'"),
    ],
)
def test_errors_name_the_place(path, factory, message):
    with pytest.raises(ValueError, match=message):
        load_model(f"{path}:{factory}", "default")


def test_other_errors(path, tmp_path):
    with pytest.raises(ValueError, match="takes no num_classes"):
        load_model(f"{path}:words", "default", 4)
    with pytest.raises(ValueError, match="weights 'IMAGENET1K_V1'"):
        load_model(f"{path}:words", "IMAGENET1K_V1")
    with pytest.raises(FileNotFoundError):
        load_model(f"{tmp_path}/none.py:f", "default")
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(ValueError, match="ModuleNotFoundError"):
        load_model(f"{tmp_path}/broken.py:f", "default")


def test_export(path, tmp_path, capsys):
    target, report = tmp_path / "x.safetensors", tmp_path / "x.json"
    command = ["export", f"{path}:words", "--weights", "random:1", "--freeze-at", "0"]
    assert main([*command, "-o", str(target), "--json", str(report)]) == exit_codes.OK
    document = json.loads(report.read_text())
    assert (document["input_shape"], document["input_dtype"]) == ([5], "int64")
    assert load_extractor(target).dtype == torch.int64
    assert main([*command, "-o", str(target), "--input-size", "8"]) == exit_codes.USAGE
    assert "takes no images" in capsys.readouterr().err
