from __future__ import annotations

import pytest

from tests.unit.data.images import class_folders, picture


@pytest.fixture
def source(tmp_path):
    return class_folders(tmp_path / "d", 2, 3)


def test_what_is_told(swift, hapi, source, capsys):
    (source / "class 0" / "Thumbs.db").write_bytes(b"x")
    (source / "class 1" / "a.txt").write_bytes(b"x")
    (source / "class 1" / "b.txt").write_bytes(b"x")
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "1.jpg").write_bytes(picture(7))
    code, report = hapi("put", source, "c/d", "--shard-samples", 1)
    assert code == 0 and report["classes"] == ["class 0", "class 1", "deep"]
    assert report["names"]["class 0/2"] == "class 0/2.png" and len(report["names"]) == 7
    told = capsys.readouterr()
    assert "swift://c/d: 7 samples, 3 classes" in told.out
    assert "classes: class 0, class 1, deep\n" in told.out
    assert "3 files are called like no image: left out (.txt 2, .db 1)" in told.err
    assert "note: all images of class 'deep' lie in folders below it ('er')" in told.err
    hapi("put", source, "swift://c/d")
    assert "(6 are shards of earlier puts: --prune removes them)" not in capsys.readouterr().err
    hapi("put", source, "swift://c/d", "--shard-samples", 4)
    assert "(5 are shards of earlier puts: --prune removes them)" in capsys.readouterr().err
    code, report = hapi("put", source, "c/d", "--shard-samples", 4, "--prune")
    assert report["pruned"] == 5 and "removed 5 objects" in capsys.readouterr().err
    assert hapi("put", source, "http://c/d") == (2, None)
    assert "want swift://" in capsys.readouterr().err


def test_without_labels(swift, hapi, tmp_path, capsys):
    for number in range(5):
        (tmp_path / "new").mkdir(exist_ok=True)
        (tmp_path / "new" / f"{number}.jpg").write_bytes(picture(number))
    assert hapi("put", tmp_path / "new", "c/new") == (1, None)
    code, report = hapi("put", tmp_path / "new", "c/new", "--unlabelled")
    assert code == 0 and (report["samples"], report["classes"]) == (5, [])
    code, report = hapi("verify", "c/new")
    assert code == 0 and report["samples"] == 5 and report["stray"] == 0
    assert hapi("ls", "c/new")[1]["datasets"][0]["samples"] == 5
    table = tmp_path / "t.csv"
    table.write_text("".join(f"{n},{'ab'[n % 2]}\n" for n in range(5)))
    code, report = hapi("verify", "c/new", "--labels", table)
    assert code == 0 and report["class_counts"] == [3, 2]
    capsys.readouterr()
    train = ("train", "swift://c/new", "--model", "resnet18", "--weights", "random:0",
             "--freeze-at", "avgpool", "--split", "raw")  # fmt: skip
    assert hapi(*train) == (1, None)
    assert "c/new: was stored without labels; give a table (--labels)" in capsys.readouterr().err
    for number in range(3):
        swift.put("in", f"cat/{number}.jpg", picture(number))
    assert hapi("put", "swift://in", "c/again", "--unlabelled")[1]["classes"] == []
    assert hapi("put", "swift://in", "c/x", "--unlabelled", "--labels", table) == (2, None)
