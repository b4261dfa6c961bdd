"""``hapi cuts`` and ``hapi models`` as a user runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from hapi_compute.cli import exit_codes
from hapi_compute.cli.main import main

QUICK = ["--input-size", "32", "--batch", "1", "--repeats", "1", "--threads", "1"]


def test_cuts(tmp_path, capsys):
    report, picture = tmp_path / "cuts.json", tmp_path / "cuts.png"
    command = ["cuts", "resnet18", *QUICK, "--json", str(report), "--plot", str(picture)]
    assert main(command) == exit_codes.OK
    lines = capsys.readouterr().out.splitlines()
    document = json.loads(report.read_text())
    cuts = document["cuts"]
    assert len(lines) == len(cuts) + 2 and "avgpool" in lines[-4]
    assert document["input_shape"] == [3, 32, 32] and not document["fixed_input_shape"]
    assert cuts[0]["name"] == "input"
    assert cuts[0]["bytes"] == {"float32": 12288, "float16": 6144, "int8": 3096, "uint8": 3072}
    assert cuts[-1]["bytes"] == {"float32": 4000, "float16": 2000, "int8": 1008}
    assert (cuts[0]["time_share"], cuts[-1]["time_share"]) == (0, 1)
    shares = [cut["time_share"] for cut in cuts]
    flops = [cut["flops"] for cut in cuts]
    assert shares == sorted(shares) and flops == sorted(flops) and flops[-1] > 7e7
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_only_pareto_cuts_up_to_a_module(capsys):
    command = ["cuts", "resnet18", "--freeze-at", "layer2", "--pareto", *QUICK]
    assert main(command) == exit_codes.OK
    out = capsys.readouterr().out
    assert "add_2" in out and "layer3" not in out and " conv1 " not in out


def test_cuts_to_stdout_as_json(capsys):
    assert main(["cuts", "alexnet", "--input-size", "64", "--batch", "1", "--repeats", "1",
                 "--json", "-"]) == exit_codes.OK  # fmt: skip
    assert json.loads(capsys.readouterr().out)["model"] == "alexnet"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--freeze-at", "nowhere"], "--freeze-at: no cut"),
        (["--freeze-at", "layer5"], "modules: .*layer4"),
        (["--plot", "x.bmp"], "--plot: 'x.bmp'.*.png"),
        (["--plot", "/proc/x.png"], "--plot: '/proc/x.png' cannot be written"),
        (["--json", "/proc/x.json"], "--json: '/proc/x.json' cannot be written"),
        (["--json", "/"], "--json: '/' is a directory"),
        (["--weights", "x.ckpt"], "a file must end in .safetensors"),
    ],
)
def test_cuts_usage(option, message, capsys):
    assert main(["cuts", "resnet18", *QUICK, *option]) == exit_codes.USAGE
    captured = capsys.readouterr()
    assert re.search(message, captured.err) and captured.err.count("\n") == 1
    assert not captured.out


@pytest.mark.parametrize("option", ["--batch", "--repeats", "--threads", "--classes"])
@pytest.mark.parametrize("value", ["0", "-1", "x", "10000000"])
def test_numbers_are_checked_before_anything_is_done(option, value, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["cuts", "resnet18", f"{option}={value}"])
    assert caught.value.code == exit_codes.USAGE
    assert f"argument {option}: '{value}'" in capsys.readouterr().err


def test_an_input_that_the_model_does_not_take(capsys):
    assert main(["cuts", "alexnet", *QUICK]) == exit_codes.USAGE
    assert "--input-size (the model's own is 224x224)" in capsys.readouterr().err


def test_models(capsys):
    assert main(["models", "resnet1*"]) == exit_codes.OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["resnet101", "resnet152", "resnet18"]
    assert lines[-1].split()[1:] == ["default", "IMAGENET1K_V1"]


def test_models_of_both_libraries(tmp_path, capsys):
    report = tmp_path / "models.json"
    assert main(["models", "--json", str(report)]) == exit_codes.OK
    assert capsys.readouterr().out.splitlines()[-1].startswith("and ")
    models = {row["name"]: row for row in json.loads(report.read_text())["models"]}
    assert sum(row["library"] == "torchvision" for row in models.values()) == 80
    lite = models["timm/tf_efficientnet_lite0"]
    assert lite["weights"] == ["package:efficientnet-lite0", "default"]


def test_models_by_a_part_of_their_names(capsys):
    assert main(["models", "ShuffleNet"]) == exit_codes.OK
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert len(names) == 4 and all("shufflenet" in name for name in names)
    # What is a name finds that one only.
    assert main(["models", "resnet18"]) == exit_codes.OK
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("nothing*", "nothing matches 'nothing"), ("resnett50", "near: resnet50, .*timm/resnet50")],
)
def test_no_such_models(pattern, message, capsys):
    assert main(["models", pattern]) == exit_codes.FAILED
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    "words",
    [["--help"], ["cuts", "--help"], ["models", "--help"], ["export", "--help"],
     ["cuts", "x", "--batch", "0"]],
)  # fmt: skip
def test_help_and_usage_do_without_torch(words):
    program = (
        "import sys\nfrom hapi_compute.cli.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0
