from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
import safetensors.numpy

from hapi_compute.models import load_model
from swift_hapi.graph.extractor import save_extractor
from swift_hapi.graph.split import make_extractor

DIGESTS = [hashlib.sha256(bytes([n])).hexdigest() for n in range(3)]


@pytest.fixture
def models(swift):
    for digest in DIGESTS:
        swift.put("hapi-models", f"{digest}.safetensors", b"not really one")
    swift.put("hapi-models", "mine.safetensors", b"")
    swift.put("hapi-models", "notes.txt", b"no model")
    return swift.containers["hapi-models"]


def test_ls(models, hapi, capsys):
    code, report = hapi("models", "ls", "-l")
    assert code == 0
    assert [m["model"] for m in report["models"]] == [
        *(f"sha256:{d}" for d in sorted(DIGESTS)), "mine",
    ]  # fmt: skip
    assert all(m["freeze_at"] is None for m in report["models"])
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_ls_looks_into_a_file(swift, hapi, tmp_path):
    path = tmp_path / "e.safetensors"
    extractor = make_extractor(load_model("squeezenet1_1", "random:1").module, "features.2")
    digest = save_extractor(extractor, path)
    swift.put("hapi-models", f"{digest[7:]}.safetensors", path.read_bytes())
    other = {"x": np.zeros(3, np.float32)}
    swift.put("hapi-models", "other.safetensors", safetensors.numpy.save(other))
    _, report = hapi("models", "ls", "--long")
    assert report["models"][0]["model"] == digest
    assert report["models"][0]["input"] == [3, 224, 224]
    assert report["models"][0]["freeze_at"] == extractor.cuts[-1].name
    assert report["models"][1]["input"] is None


def test_nothing_there_is_said(hapi, capsys):
    for argv in (["ls"], ["rm", "--all"], ["ls", "--container", "other"]):
        assert hapi("models", *argv)[0] == 0
        where = argv[-1] if argv[-1] == "other" else "hapi-models"
        assert capsys.readouterr().err == f"no extractor files in {where}\n"


def test_sizes_are_told_in_units_that_suit_them(models, hapi, capsys):
    assert hapi("models", "ls")[0] == 0
    assert "14 B  sha256:" in capsys.readouterr().out


def test_no_container_no_models(hapi):
    assert hapi("models", "ls") == (0, {"container": "hapi-models", "models": []})


def test_rm(models, hapi, capsys):
    code, report = hapi("models", "rm", f"sha256:{DIGESTS[0]}", DIGESTS[1][:8], "mine", "-n")
    assert code == 0 and len(report["removed"]) == 3 and len(models) == 5
    code, report = hapi("models", "rm", f"sha256:{DIGESTS[0]}", DIGESTS[1][:8], "mine")
    assert code == 0 and set(models) == {f"{DIGESTS[2]}.safetensors", "notes.txt"}
    assert f"removed sha256:{DIGESTS[1]}" in capsys.readouterr().err
    assert hapi("models", "rm", "--all")[0] == 0
    assert set(models) == {"notes.txt"}


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["rm"], "name the models to remove"),
        (["rm", "mine", "--all"], "name the models to remove"),
        (["rm", "yours"], "'yours' is no model there"),
        (["rm", DIGESTS[0][:7]], "is no model there"),
        (["rm", "mine", "f" * 64], "is no model there"),
        (["ls", "more"], "one word too many"),
    ],
)
def test_what_is_wrong_is_said(models, hapi, capsys, argv, why):
    assert hapi("models", *argv) == (2, None)
    assert why in capsys.readouterr().err
    assert len(models) == 5


def test_architectures_are_listed_as_before(hapi, monkeypatch, capsys):
    for name in ("ST_AUTH", "ST_USER", "ST_KEY"):
        monkeypatch.delenv(name)
    code, report = hapi("models", "resnet18")
    assert code == 0 and [m["name"] for m in report["models"]][0] == "resnet18"
    assert io.StringIO(capsys.readouterr().out).readline().startswith("resnet18")
