"""``hapi export`` as a user runs it."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from hapi_compute.cli import exit_codes
from hapi_compute.cli.main import main
from swift_hapi.graph.extractor import load_extractor


def test_export(tmp_path, capsys):
    path, report = tmp_path / "x.safetensors", tmp_path / "x.json"
    command = ["export", "resnet18", "--weights", "random:1", "--freeze-at", "layer2"]
    assert main([*command, "-o", str(path), "--json", str(report)]) == exit_codes.OK
    out = capsys.readouterr().out
    digest = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert out == f"{digest}\n"

    document = json.loads(report.read_text())
    extractor = load_extractor(path)
    assert document["digest"] == digest == extractor.digest
    assert document["freeze_at"] == "layer2_1_relu_1" == extractor.cuts[-1].name
    assert document["input_shape"] == [3, 224, 224]
    assert document["bytes"] == path.stat().st_size
    assert [cut["name"] for cut in document["cuts"]] == [cut.name for cut in extractor.cuts]
    assert document["cuts"][0] == {
        "index": 0, "name": "input", "shape": [3, 224, 224], "bytes": 602112, "pareto": True,
    }  # fmt: skip

    assert main([*command, "-o", str(path), "--json", "-"]) == exit_codes.OK
    assert json.loads(capsys.readouterr().out)["digest"] == digest


def test_input_size(tmp_path, capsys):
    path = tmp_path / "x.safetensors"
    command = ["export", "resnet18", "--weights", "random:1", "--freeze-at", "maxpool"]
    assert main([*command, "--input-size", "64x96", "-o", str(path)]) == exit_codes.OK
    assert load_extractor(path).input_shape == (3, 64, 96)


@pytest.mark.parametrize(
    ("model", "weights", "freeze_at", "message"),
    [
        ("resnet18", "random:1", "layer9", "--freeze-at.*layer"),
        ("resnet18", "random:x", "layer4", "random:SEED"),
        ("resnet19", "random:1", "layer4", "no model"),
    ],
)
def test_usage_errors(tmp_path, capsys, model, weights, freeze_at, message):
    path = tmp_path / "x.safetensors"
    words = ["export", model, "--weights", weights, "--freeze-at", freeze_at, "-o", str(path)]
    assert main(words) == exit_codes.USAGE
    captured = capsys.readouterr()
    assert re.search(message, captured.err) and not captured.out
    assert not path.exists()


def test_bad_input_size(tmp_path):
    with pytest.raises(SystemExit) as caught:
        main(["export", "resnet18", "--weights", "none", "--freeze-at", "0", "-o", "x",
              "--input-size", "0"])  # fmt: skip
    assert caught.value.code == exit_codes.USAGE
