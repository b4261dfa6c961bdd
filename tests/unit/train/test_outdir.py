from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hapi_compute.train.outdir import held


def test_one_run_at_a_time(tmp_path):
    with held(tmp_path / "run"):
        with pytest.raises(ValueError, match="run': another run is writing there"):
            with held(tmp_path / "run"):
                pytest.fail("two have it")
        (tmp_path / "run" / "log.jsonl").touch()
    with held(tmp_path / "run"):
        pass
    assert sorted(os.listdir(tmp_path / "run")) == [".lock", "log.jsonl"]


def test_a_killed_run_has_it_no_more(tmp_path):
    code = (
        "import os, sys; from hapi_compute.train.outdir import held\n"
        "with held(sys.argv[1]):\n"
        "    print('has it', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"has it\n"
        with pytest.raises(ValueError, match="another run"), held(tmp_path):
            pass
        process.kill()
        process.wait()
        with held(tmp_path):
            pass


def test_a_directory_that_stayed_empty_goes_again(tmp_path):
    with held(tmp_path / "a" / "b"):
        assert os.listdir(tmp_path / "a") == ["b"]
    assert os.listdir(tmp_path / "a") == []
    (tmp_path / "c").mkdir()
    with held(tmp_path / "c"):
        pass
    assert (tmp_path / "c").is_dir()


@pytest.mark.parametrize("where", ["file", "file/x", "/proc/x"])
def test_where_nothing_can_be_written(tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=f"out='{where}': cannot be written to"), held(where):
        pass


def test_nothing_to_hold():
    with held(None):
        pass
