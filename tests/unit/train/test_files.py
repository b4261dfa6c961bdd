from __future__ import annotations

import os

import pytest

from hapi_compute.train.files import write_whole


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new" / "a.bin"
    write_whole(path, b"one")
    assert path.read_bytes() == b"one"

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, b"two")
    assert path.read_bytes() == b"one" and [p.name for p in path.parent.iterdir()] == ["a.bin"]


def test_an_interrupt_after_the_rename_stays_an_interrupt(tmp_path, monkeypatch):
    rename = os.replace

    def interrupted(*names):
        rename(*names)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "a.bin", b"one")
    assert (tmp_path / "a.bin").read_bytes() == b"one"
