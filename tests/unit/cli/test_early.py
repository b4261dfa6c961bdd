from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hapi_compute.cli.main import main
from hapi_compute.train.outdir import held

STORE = ["--auth-url", "http://127.0.0.1:9", "--user", "u", "--key", "k"]
TRAIN = ["train", "swift://c/p", "--model", "m", "--weights", "w", "--freeze-at", "f", *STORE]
EXTRACT = ["extract", "c", "--model", "m", "--cut", "k", "--out", "o.npy", *STORE]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "task.py").touch()
    for name in ("model.json", "model.safetensors"):
        (tmp_path / "run" / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ([*TRAIN, "--labels", "none.csv"], "train: --labels='none.csv': there is no such file"),
        ([*TRAIN, "--weights", "none.pth"], "--weights='none.pth': there is no such file"),
        ([*TRAIN, "--task", "none.py:f"], "--task='none.py:f': there is no file none.py"),
        ([*TRAIN, "--task", "task.py"], "--task='task.py': want path/to/file.py:factory"),
        ([*TRAIN, "--task", "task.py:1f"], "--task='task.py:1f': want path/to/file.py:factory"),
        ([*TRAIN, "--model", "none.py:f"], "--model='none.py:f': there is no file none.py"),
        ([*TRAIN, "--split", "a b"], "--split='a b': want auto, raw, or the name"),
        ([*TRAIN, "--split", ""], "--split='': want auto, raw, or the name"),
        ([*TRAIN, "--out", "task.py"], "--out='task.py': cannot be written to"),
        ([*TRAIN, "--config", "none.yaml"], "none.yaml: no such file or directory"),
        ([*EXTRACT, "--labels", "none.csv"], "--labels='none.csv': there is no such file"),
        ([*EXTRACT, "--weights", "none.pth"], "--weights='none.pth': there is no such file"),
        ([*EXTRACT, "--model", "none.py:f"], "--model='none.py:f': there is no file none.py"),
        (["eval", "c", "--run", "none", *STORE], "--run='none': holds no model.json"),
        (["predict", "c", "--run", "none", *STORE], "--run='none': holds no model.json"),
        (["predict", "c", "--run", "run", "--split", "?", *STORE], "--split='?': want auto"),
        (["verify", "c", "--labels", "none.csv", *STORE], "--labels='none.csv': there is no"),
        (["put", "run", "swift://c", "--labels", "no.csv", *STORE], "--labels='no.csv': there"),
    ],
)
def test_what_is_not_there_is_told_at_once(place, capsys, argv, why):
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert why in error and error.splitlines()[-1].startswith(f"hapi {argv[0]}: ")


def test_before_anything_heavy_is_imported(place):
    codes = [
        [*TRAIN, "--labels", "none.csv"], [*TRAIN, "--out", "task.py"],
        ["predict", "c", "--run", "none", *STORE], [*EXTRACT, "--weights", "none.pth"],
    ]  # fmt: skip
    code = (
        "import sys; from hapi_compute.cli.main import main\n"
        f"codes = [main(argv) for argv in {codes!r}]\n"
        "sys.exit(codes != [2] * len(codes) or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_directory_that_another_run_has(place, capsys):
    with held("run"):
        assert main([*TRAIN, "--out", "run"]) == 2
    assert "--out='run': another run is writing there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--checkpoint-seconds", "-1"], "hapi train: --checkpoint-seconds=-1.0: want 0 to"),
        (["--resume"], "hapi train: --resume needs --out, the directory"),
        (["--patience", "2"], "hapi train: --patience needs --val-split: without"),
        (["--require-pushdown", "--split", "raw"],
         "hapi train: --require-pushdown contradicts --split=raw"),
    ],
)  # fmt: skip
def test_options_are_spelled_as_they_are_given(capsys, options, why):
    assert main([*TRAIN, *options]) == 2
    assert why in capsys.readouterr().err


def test_a_file_of_options_too(place, capsys):
    (place / "run.yaml").write_text(json.dumps({"batch-size": 0}))
    assert main([*TRAIN, "--config", "run.yaml"]) == 2
    assert "hapi train: --batch-size=0: want 1 to" in capsys.readouterr().err
