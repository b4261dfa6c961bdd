from __future__ import annotations

from hapi_compute.cli import ls
from hapi_compute.data.manifest import Manifest, ShardEntry

MANIFEST = Manifest(("cat", "dog"), (3, 2), (ShardEntry("s.tar", "e" * 32, 5, 1024),))


def test_containers(swift, hapi, capsys):
    swift.listing_limit = 2
    for name in ("b", "a\nb", "c", "\U0001f600", "%41"):
        swift.put(name, "o", b"12345")
    code, report = hapi("ls")
    assert code == 0
    assert [c["name"] for c in report["containers"]] == ["%41", "a\nb", "b", "c", "\U0001f600"]
    assert report["containers"][0] == {"name": "%41", "objects": 1, "bytes": 5}
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[1].endswith("a\\nb") and "1 object " in lines[1]


def test_counts_are_those_of_the_containers(swift, hapi, capsys, monkeypatch):
    swift.lagging = True
    for number in range(20):
        swift.put(f"c{number:02}", "o", b"x" * number)
    _, report = hapi("ls")
    assert [c["bytes"] for c in report["containers"]] == list(range(20))
    assert all(c["objects"] == 1 for c in report["containers"])
    monkeypatch.setattr(ls, "_ASKED", 19)
    swift.seen.clear()
    _, report = hapi("ls")
    assert {c["objects"] for c in report["containers"]} == {0}
    assert not [key for key in swift.seen if key[0] == "HEAD"]
    assert "20 containers; counts may lag behind" in capsys.readouterr().err


def test_objects_and_datasets(swift, hapi, capsys):
    swift.listing_limit = 3
    for number in range(7):
        swift.put("c", f"p/{number}\n", b"x" * 1500)
    swift.put("c", "p/d/hapi-dataset.json", MANIFEST.to_json())
    swift.put("c", "q", b"")
    code, report = hapi("ls", "c/p/")
    assert code == 0 and report["count"] == 8
    assert [o["name"] for o in report["objects"]][:2] == ["p/0\n", "p/1\n"]
    (dataset,) = report["datasets"]
    assert dataset["url"] == "swift://c/p/d" and dataset["classes"] == {"cat": 3, "dog": 2}
    assert dataset["digest"] == MANIFEST.digest
    out = capsys.readouterr().out
    assert "1.5 kB  p/0\\n" in out and "dataset swift://c/p/d: 5 samples, 2 classes" in out
    code, report = hapi("ls", "swift://c", "-d")
    assert report["count"] == 9 and "objects" not in report
    assert "p/0" not in capsys.readouterr().out


def test_nothing_there(hapi, capsys):
    assert hapi("ls", "nowhere") == (1, None)
    assert capsys.readouterr().err == "hapi ls: swift://nowhere: there is no container 'nowhere'\n"
