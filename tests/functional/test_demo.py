"""``hapi demo`` as a newcomer runs it, over a tenth of the images."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from tests.functional.support import processes_naming


def test_demo_shows_two_equal_runs_and_leaves_nothing_running(tmp_path):
    out = tmp_path / "out"
    report_path = out / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "hapi_compute.cli.main", "demo", "--quick", "--out", out]
        + ["--json", report_path],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert processes_naming(str(tmp_path)) == []
    raw, split = json.loads(report_path.read_text())["runs"]
    assert (raw["mode"], raw["split"], split["mode"]) == ("raw", "raw", "split")
    assert len(raw["step_losses"]) == 3 * 4
    assert raw["step_losses"] == pytest.approx(split["step_losses"], rel=1e-4)
    assert raw["test_accuracy"] == split["test_accuracy"] > 0.5
    for one, other in zip(raw["epochs"], split["epochs"], strict=True):
        assert other["bytes_received"] * 3 < one["bytes_received"]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    assert split["fallbacks"] == 0

    # The product is a plain state dict that timm loads without us.
    import timm

    network = timm.create_model("tf_efficientnet_lite0", pretrained=False, num_classes=10)
    network.load_state_dict(load_file(out / "split" / "model.safetensors"), strict=True)
    with torch.inference_mode():
        assert network.eval()(torch.zeros(1, 3, 96, 96)).shape == (1, 10)
