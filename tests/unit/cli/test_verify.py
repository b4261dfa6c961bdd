from __future__ import annotations

import hashlib

import pytest

from hapi_compute.data.manifest import Manifest, ShardEntry
from hapi_compute.data.packing import build_tar
from tests.unit.samples.builders import encode, picture

JPEG = encode(picture(20, 20))


def tar(*samples) -> bytes:
    return build_tar((key, "jpg", label, JPEG) for key, label in samples)


@pytest.fixture
def dataset(swift):
    """``swift://c/d``: two shards, three samples, classes cat (1) and dog (2)."""
    bodies = {"0.tar": tar(("a", 0), ("b", 1)), "1.tar": tar(("c", 1))}
    store(swift, bodies, (1, 2), [2, 1])
    return bodies


def store(swift, bodies, counts, samples) -> None:
    entries = []
    for (name, body), count in zip(bodies.items(), samples, strict=True):
        swift.put("c", f"d/{name}", body)
        entries.append(ShardEntry(name, hashlib.md5(body).hexdigest(), count, len(body)))
    manifest = Manifest(("cat", "dog"), counts, tuple(entries))
    swift.put("c", "d/hapi-dataset.json", manifest.to_json())


def problems(hapi, *more) -> list[str]:
    code, report = hapi("verify", "c/d", *more)
    assert code == (1 if report["problems"] else 0)
    assert report["good"] == (not report["problems"])
    return report["problems"]


def test_whole(swift, dataset, hapi, capsys):
    swift.put("c", "d/other", b"")
    code, report = hapi("verify", "c/d")
    assert code == 0 and report["good"] and report["problems"] == []
    assert (report["samples"], report["objects"], report["stray"]) == (3, 2, 1)
    assert report["class_counts"] == [1, 2] and report["digest"].startswith("sha256:")
    assert "swift://c/d is whole: 3 samples, 2 classes, 2 objects" in capsys.readouterr().out


def test_missing_and_changed_objects(swift, dataset, hapi):
    del swift.containers["c"]["d/0.tar"]
    assert problems(hapi) == ["c/d/0.tar: is in the manifest, not in the store"]
    swift.put("c", "d/0.tar", dataset["1.tar"])
    (found,) = problems(hapi)
    assert found.startswith("c/d/0.tar: is not the object in the manifest (ETag ")


def test_names_of_files(swift, dataset, hapi):
    entries = [
        ShardEntry(name, hashlib.md5(body).hexdigest(), count, len(body))
        for (name, body), count in zip(dataset.items(), (2, 1), strict=True)
    ]
    names = hashlib.md5(b"names").hexdigest()
    manifest = Manifest(("cat", "dog"), (1, 2), tuple(entries), names=names)
    swift.put("c", "d/hapi-dataset.json", manifest.to_json())
    assert problems(hapi) == ["c/d/hapi-names.json: is not what the manifest names"]
    swift.put("c", "d/hapi-names.json", b"names")
    assert problems(hapi) == []
    assert hapi("verify", "c/d")[1]["stray"] == 0


def test_samples_that_cannot_be_decoded(swift, dataset, hapi):
    broken = build_tar([("a", "jpg", 0, JPEG), ("b", "jpg", 1, JPEG[: len(JPEG) // 2])])
    store(swift, {"0.tar": broken, "1.tar": dataset["1.tar"]}, (1, 2), [2, 1])
    (found,) = problems(hapi)
    assert found.startswith("c/d/0.tar: sample 'b': ") and "runcated" in found
    assert problems(hapi, "--no-decode") == []


def test_labels(swift, dataset, hapi, tmp_path):
    other = tar(("a", None), ("b", 7))
    store(swift, {"0.tar": other, "1.tar": dataset["1.tar"]}, (1, 2), [2, 1])
    assert problems(hapi) == [
        "c/d/0.tar: sample 'a' has no label",
        "c/d/0.tar: sample 'b' has label 7, there are 2 classes",
    ]
    table = tmp_path / "t.csv"
    table.write_text("a,cat\nb,dog\nc,dog\n")
    assert problems(hapi, "--labels", table) == []
    table.write_text("a,cat\nb,dog\n")
    assert problems(hapi, "--labels", table) == [f"c/d/1.tar: sample 'c' is not in {table}"]


def test_counts(swift, dataset, hapi):
    store(swift, dataset, (2, 1), [2, 1])
    assert problems(hapi) == ["swift://c/d: class 'cat' has 1 samples, the manifest says 2"]
    store(swift, dataset, (1, 2), [3, 1])
    assert problems(hapi) == ["c/d/0.tar: has 2 samples, not 3"]


def test_keys_that_occur_twice(swift, dataset, hapi):
    store(swift, {"0.tar": tar(("a", 0), ("b", 1)), "1.tar": tar(("a", 1))}, (1, 2), [2, 1])
    assert problems(hapi) == ["c/d/1.tar: has a key that d/0.tar has too"]


def test_a_broken_manifest(swift, dataset, hapi):
    body = swift.containers["c"]["d/hapi-dataset.json"].body
    swift.put("c", "d/hapi-dataset.json", body.replace(b"dog", b"dig"))
    assert problems(hapi) == [
        "c/d/hapi-dataset.json: does not have the digest that it says it has"
    ]


def test_no_tar_at_all(swift, dataset, hapi):
    store(swift, {"0.tar": b"nonsense" * 100, "1.tar": dataset["1.tar"]}, (1, 2), [2, 1])
    (found,) = problems(hapi)
    assert "d/0.tar: neither an uncompressed tar nor" in found


def test_without_a_manifest(swift, dataset, hapi):
    del swift.containers["c"]["d/hapi-dataset.json"]
    code, report = hapi("verify", "c/d")
    assert code == 0 and report["class_counts"] == [1, 2] and report["digest"] is None
    assert problems(hapi, "--num-classes", 1) == [
        "c/d/0.tar: sample 'b' has label 1, there are 1 classes",
        "c/d/1.tar: sample 'c' has label 1, there are 1 classes",
    ]
    for name in ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg"):
        swift.put("single", name, JPEG)
    _, report = hapi("verify", "single")
    assert report["good"] and report["class_counts"] == [2, 1]


def test_the_store_is_not_the_dataset(swift, dataset, hapi, capsys):
    swift.token_life = -1
    assert hapi("verify", "c/d") == (1, None)
    assert "401" in capsys.readouterr().err
    assert hapi("verify", "c/d", "--jobs", 0) == (2, None)
