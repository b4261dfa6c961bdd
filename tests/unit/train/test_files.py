from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from hapi_compute.train.files import check_writable, open_whole, write_whole


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


def test_a_link_is_followed_and_stays(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there/file")
    for content in (b"one", b"two"):
        write_whole(link, content)
        assert link.is_symlink() and (tmp_path / "there" / "file").read_bytes() == content
    assert os.listdir(tmp_path / "there") == ["file"]


def test_a_fifo_is_written_through(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    check_writable(str(fifo), "--json")
    found = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    reader.start()
    write_whole(fifo, b"one")
    reader.join(10)
    assert found == [b"one"] and os.listdir(tmp_path) == ["fifo"]


def test_devices_stay_devices(tmp_path):
    for name, path in (("null", "/dev/null"), ("full", "/dev/full")):
        (tmp_path / name).symlink_to(path)
    check_writable(str(tmp_path / "null"), "--json")
    write_whole(tmp_path / "null", b"one")
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "full", b"one")
    assert [os.readlink(tmp_path / name) for name in ("null", "full")] == [
        *("/dev/null", "/dev/full")
    ]


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_open_file_goes_on_where_it_is(tmp_path, path):
    code = (
        "from hapi_compute.train.files import write_whole\n"
        f"print('before'); write_whole({path!r}, b'json\\n'); print('after')"
    )
    out = tmp_path / "out"
    with open(out, "wb") as stream:
        subprocess.run([sys.executable, "-c", code], stdout=stream, check=True)
    assert out.read_text() == "before\njson\nafter\n"
    assert os.listdir(tmp_path) == ["out"]


def test_a_stream_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), open_whole(path) as stream:
        stream.write(b"new")
        1 / 0  # noqa: B018
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_modes(tmp_path):
    write_whole(tmp_path / "a", b"")
    write_whole(tmp_path / "b", b"", private=True)
    umask = os.umask(0)
    os.umask(umask)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"]
    assert modes == [0o666 & ~umask, 0o600]


def test_directories_on_the_way_are_made(tmp_path):
    check_writable(str(tmp_path / "a" / "b" / "c"), "--json")
    assert os.listdir(tmp_path / "a" / "b") == []


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "--json: is empty"),
        (".", "'.' is a directory"),
        ("x/", "'x/' is a directory"),
        ("file/x", "'file/x' cannot be written"),
        ("/proc/nowhere/x", "cannot be written"),
        ("/proc/x", "cannot be written"),
        ("loop", "'loop' cannot be written"),
        ("/dev/fd/987654321", "cannot be written"),
    ],
)
def test_what_cannot_be_written_is_told_before(tmp_path, monkeypatch, path, why):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ValueError, match=why):
        check_writable(path, "--json")
    assert sorted(os.listdir(tmp_path)) == ["file", "loop"]
