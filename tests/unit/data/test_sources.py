from __future__ import annotations

import io
import os
import tarfile

import pytest

from hapi_compute.data.errors import BadSource, DatasetError
from hapi_compute.data.packing import build_tar
from hapi_compute.data.shard_writer import fault
from hapi_compute.data.sources import open_source
from tests.unit.data.images import class_folders, picture


def test_class_folders(tmp_path):
    source = open_source(class_folders(tmp_path / "d"))
    assert source.classes == ("class 0", "class 1", "class 2")
    assert [s.label for s in source.samples] == [0] * 4 + [1] * 4 + [2] * 4
    first = source.samples[0]
    assert (first.key, first.extension) == ("class 0/0", "jpg")
    assert first.read() == picture(0)


def test_nested_folders_hidden_files_and_other_files(tmp_path):
    root = class_folders(tmp_path / "d", 1, 2)
    (root / "class 0" / "deep").mkdir()
    (root / "class 0" / "deep" / "x.JPEG").write_bytes(picture(9))
    (root / "class 0" / ".DS_Store").write_bytes(b"x")
    (root / ".git").mkdir()
    (root / "class 0" / "notes.txt").write_bytes(b"x")
    source = open_source(root)
    assert [s.key for s in source.samples] == ["class 0/0", "class 0/1", "class 0/deep/x"]
    assert source.ignored == ("class 0/notes.txt",) and source.unusable == source.notes == ()


def test_names_stay_what_they_are_but_for_dots(tmp_path):
    folder = tmp_path / "d" / "v1.0 \u00e4\U0001f600"
    folder.mkdir(parents=True)
    long = "z" * 200
    names = ("a b.jpg", "a_b.jpg", "a?b.JPG", "a b.png", "x.y.jpg", "x_y.jpg", f"{long}.jpg")
    for name in (*names, b"bad \xe9.jpg"):
        with open(os.path.join(os.fsencode(folder), os.fsencode(name)), "wb") as stream:
            stream.write(picture(1))
    found = {s.name.rpartition("/")[2]: s.key for s in open_source(tmp_path / "d").samples}
    assert found == {
        "a b.jpg": f"{folder.name}/a b", "a b.png": f"{folder.name}/a b-2",
        "a?b.JPG": f"{folder.name}/a?b", "a_b.jpg": f"{folder.name}/a_b",
        "bad \\xe9.jpg": f"{folder.name}/bad _", "x.y.jpg": f"{folder.name}/x_y",
        "x_y.jpg": f"{folder.name}/x_y-2", f"{long}.jpg": f"{folder.name}/{long}",
    }  # fmt: skip


def test_a_class_whose_name_is_not_utf_8_is_refused(tmp_path):
    os.mkdir(os.path.join(os.fsencode(tmp_path), b"caf\xe9"))
    with pytest.raises(DatasetError, match=r"folder 'caf\\\\xe9': its name is not UTF-8"):
        open_source(tmp_path)


def test_tars(tmp_path):
    (tmp_path / "1.tar").write_bytes(build_tar([("a", "jpg", 2, picture(1))]))
    (tmp_path / "2.tar").write_bytes(build_tar([("a", "jpg", 0, picture(2))]))
    source = open_source(tmp_path)
    assert source.classes == ("0", "1", "2")
    assert [(s.key, s.label) for s in source.samples] == [("1/a", 2), ("2/a", 0)]
    assert source.samples[1].read() == picture(2)
    single = open_source(tmp_path / "1.tar")
    assert [s.key for s in single.samples] == ["a"]


def test_tar_sample_without_label(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name in ("a.jpg", "b.jpg", "b.cls"):
            member = tarfile.TarInfo(name)
            content = b"7" if name.endswith("cls") else picture(1)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    source = open_source(tmp_path)
    assert [s.key for s in source.samples] == ["b"]
    assert "x.tar:a" in source.unusable[0]


def test_nothing_usable(tmp_path):
    for make in (lambda p: None, lambda p: (p / "a").mkdir()):
        make(tmp_path)
        with pytest.raises(DatasetError):
            open_source(tmp_path)
    with pytest.raises(DatasetError, match="nowhere"):
        open_source(tmp_path / "nowhere")
    (tmp_path / "bad.tar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(DatasetError, match="bad.tar"):
        open_source(tmp_path)


def test_a_link_to_nothing_is_one_bad_file_among_others(tmp_path):
    root = class_folders(tmp_path / "d", 1, 2)
    (root / "class 0" / "a.jpg").symlink_to("nowhere")
    os.mkfifo(root / "class 0" / "b.jpg")
    (root / "class 0" / "c.jpg").symlink_to("0.jpg")
    (root / "class 0" / "d.webp").write_bytes(b"x")
    (root / "class 0" / "e").symlink_to(root)
    source = open_source(root)
    assert source.notes == (f"1 links to folders not followed: {root}/class 0/e",)
    assert [s.key[-1] for s in source.samples] == ["0", "1", "c"]
    assert [why.removeprefix(f"{root}/class 0/") for why in source.unusable] == [
        "a.jpg: is a link to nothing",
        "b.jpg: is no regular file",
        "d.webp: .webp is not supported; convert it to JPEG or PNG",
    ]
    (root / "class 0" / "0.jpg").unlink()
    assert fault(source.samples[0]) == "No such file or directory"


def test_folders_that_are_probably_not_the_classes(tmp_path):
    root = tmp_path / "d"
    for name in ("train/a/1", "train/b/1", "val/b/1", "c/1", "c/deep/1"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.jpg").write_bytes(picture(1))
    (root / "loose.jpg").write_bytes(picture(1))
    source = open_source(root)
    assert source.classes == ("c", "train", "val")
    train, val, loose = source.notes
    assert train.startswith("all images of class 'train' lie in folders below it ('a', 'b'); if")
    assert "'val'" in val and loose.startswith(f"1 images lie in {root} itself")


def test_without_labels(tmp_path):
    for name in ("1.jpg", "x.y.png", "deep/1.jpg", "notes.txt"):
        (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "d" / name).write_bytes(picture(1))
    source = open_source(tmp_path / "d", unlabelled=True)
    assert {s.key: (s.name, s.label) for s in source.samples} == {
        "1": ("1.jpg", None), "x_y": ("x.y.png", None), "deep/1": ("deep/1.jpg", None),
    }  # fmt: skip
    assert source.classes == () and source.ignored == ("notes.txt",)
    (tmp_path / "1.tar").write_bytes(build_tar([("a", "jpg", None, picture(1))]))
    assert open_source(tmp_path / "1.tar", unlabelled=True).samples[0].label is None
    (tmp_path / "t.csv").write_text("d/1.jpg,x\n")
    with pytest.raises(ValueError, match="a table has labels"):
        open_source(tmp_path / "t.csv", unlabelled=True)


def test_a_flat_folder_says_what_can_be_done(tmp_path):
    (tmp_path / "1.jpg").write_bytes(picture(1))
    with pytest.raises(DatasetError, match=r"\(--labels\), or .* \(--unlabelled\)"):
        open_source(tmp_path)


def test_file_that_shrank(tmp_path):
    source = open_source(class_folders(tmp_path / "d", 1, 2))
    source.samples[0].content.path.write_bytes(b"short")
    with pytest.raises(BadSource, match="0.jpg"):
        source.samples[0].read()
