"""Extractor files on disk: names, bounds, order of eviction."""

from __future__ import annotations

import hashlib
import os
import resource
import stat
from pathlib import Path

import pytest

from swift_hapi.engine.model_files import CachedModels, ModelFiles, OperatorModels
from swift_hapi.protocol.errors import TooLarge


def add(cached: CachedModels, content: bytes) -> str:
    upload = cached.new_upload()
    upload.write([content[:3], content[3:]])
    upload.finish()
    file = cached.add(upload)
    upload.discard()
    assert file.hex == hashlib.sha256(content).hexdigest()
    assert file.md5 == hashlib.md5(content).hexdigest()
    assert file.path.read_bytes() == content
    return file.hex


@pytest.fixture
def cached(tmp_path):
    cache = CachedModels(tmp_path / "cache", 100)
    cache.open()
    return cache


def test_least_recently_used_leaves(cached, tmp_path):
    one, two = add(cached, b"1" * 40), add(cached, b"2" * 40)
    assert cached.get(one) is not None
    three = add(cached, b"3" * 40)
    assert cached.get(two) is None
    assert {cached.get(one).hex, cached.get(three).hex} == {one, three}
    assert cached.nbytes == 80
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_survives_a_restart_in_the_order_of_use(cached, tmp_path):
    hexes = [add(cached, bytes([i]) * 40) for i in range(2)]
    for age, hex_ in enumerate(reversed(hexes)):
        os.utime(cached.get(hex_).path, (1000 + age, 1000 + age))
    (tmp_path / "cache" / ".upload-x").write_bytes(b"half")
    (tmp_path / "cache" / "unrelated.txt").write_bytes(b"stays")
    again = CachedModels(tmp_path / "cache", 100)
    again.open()
    assert not (tmp_path / "cache" / ".upload-x").exists()
    assert (tmp_path / "cache" / "unrelated.txt").exists()
    assert len(again) == 2
    add(again, b"new" * 15)
    assert again.get(hexes[1]) is None and again.get(hexes[0]) is not None


def test_smaller_bound_after_a_restart(cached, tmp_path):
    add(cached, b"1" * 40)
    add(cached, b"2" * 40)
    again = CachedModels(tmp_path / "cache", 50)
    again.open()
    assert len(again) == 1


def test_same_file_twice_counts_once(cached):
    add(cached, b"1" * 40)
    add(cached, b"1" * 40)
    assert (len(cached), cached.nbytes) == (1, 40)


def test_discarded_upload_leaves_nothing(cached, tmp_path):
    upload = cached.new_upload()
    upload.write([b"abc"])
    assert stat.S_IMODE(upload.path.stat().st_mode) == 0o600
    upload.discard()
    upload.discard()
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_can_never_be_kept(cached):
    cached.check_size(100)
    with pytest.raises(TooLarge):
        cached.check_size(101)


def operator(directory: Path, **files: bytes) -> OperatorModels:
    directory.mkdir()
    for name, content in files.items():
        (directory / f"{name}.safetensors").write_bytes(content)
    models = OperatorModels(directory)
    models.scan()
    return models


def test_operator_names(tmp_path):
    models = operator(tmp_path / "m", net=b"abc", same=b"abc", other=b"x")
    (tmp_path / "m" / "sha256net.safetensors").write_bytes(b"")
    (tmp_path / "m" / "dir.safetensors").mkdir()
    (tmp_path / "m" / "dangling.safetensors").symlink_to("nowhere")
    (tmp_path / "m" / "readme.txt").write_bytes(b"")
    models.scan()
    assert set(models.by_name) == {"net", "same", "other"}
    assert set(models.by_hex) == {hashlib.sha256(c).hexdigest() for c in (b"abc", b"x")}


def test_scan_sees_changes(tmp_path):
    models = operator(tmp_path / "m", net=b"abc", gone=b"x")
    (tmp_path / "m" / "net.safetensors").write_bytes(b"changed")
    (tmp_path / "m" / "gone.safetensors").unlink()
    models.scan()
    assert set(models.by_name) == {"net"}
    assert models.by_name["net"].hex == hashlib.sha256(b"changed").hexdigest()


def test_no_operator_directory(tmp_path):
    models = OperatorModels(tmp_path / "none")
    models.scan()
    assert models.by_name == {}


def test_find(tmp_path, cached):
    content = b"abc"
    files = ModelFiles(operator(tmp_path / "m", net=content), cached)
    hex_ = add(cached, content)
    other = add(cached, b"private")
    assert files.find("net").scope == "operator"
    # Both places have it: the operator's is open to all.
    assert files.find(hex_).scope == files.find(f"sha256:{hex_}").scope == "operator"
    assert files.find(other).scope == "account"
    for reference in ("", "nett", "sha256:", "f" * 64, f"sha256:{'f' * 64}", "sha256:net"):
        assert files.find(reference) is None


def test_what_does_not_fit_on_the_disk_leaves_nothing(cached, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    upload = cached.new_upload()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        upload.write([b"x" * 200])  # into a buffer
        with pytest.raises(OSError):
            upload.finish()
        upload.discard()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list((tmp_path / "cache").iterdir()) == []


def test_no_file_at_the_place_of_one(cached, tmp_path):
    hex_ = hashlib.sha256(b"abc").hexdigest()
    path = tmp_path / "cache" / f"{hex_}-{hashlib.md5(b'abc').hexdigest()}.safetensors"
    path.mkdir()
    (path / "x").write_bytes(b"")
    assert cached.get(hex_) is None
    again = CachedModels(tmp_path / "cache", 100)
    again.open()
    assert len(again) == 0
    assert add(cached, b"abc") == hex_
    assert cached.get(hex_).path == path
    path.unlink()
    path.mkdir()
    cached.drop(hex_)
    assert not path.exists()


def test_operator_models_stay_while_their_directory_cannot_be_read(tmp_path, caplog):
    models = operator(tmp_path / "m", net=b"abc")
    (tmp_path / "m").rename(tmp_path / "away")
    models.scan()
    assert set(models.by_name) == {"net"}
    assert [(r.levelname, "1 operator models are kept" in r.message) for r in caplog.records] == [
        ("ERROR", True)
    ]
    (tmp_path / "m").mkdir()
    models.scan()
    assert models.by_name == models.by_hex == {}
