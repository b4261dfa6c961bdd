"""Everything that ``hapi put`` packs, against a store in memory; see also tests/functional."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image

from hapi_compute.data.errors import BadSource, DatasetError, LabelMissing
from hapi_compute.data.listing import pin
from hapi_compute.data.names import read_names
from hapi_compute.data.packing import build_tar
from hapi_compute.data.source_torchvision import parse
from hapi_compute.data.uploader import PutConfig, upload
from hapi_compute.store.errors import Overwritten
from hapi_compute.store.names import SwiftUrl
from tests.unit.data.images import class_folders, picture
from tests.unit.data.packed import TARGET, content, put
from tests.unit.samples.builders import tar


@pytest.mark.parametrize("name", ["list.csv", "list.jsonl"])
def test_a_table_of_files(swift, store, tmp_path, name):
    (tmp_path / "sub").mkdir()
    for number, file in enumerate(("a b.jpg", "sub/c.jpg", "d,e.jpeg", "unused.jpg")):
        (tmp_path / file).write_bytes(picture(number))
    table = {
        "list.csv": 'path,label\na b.jpg,dog\nsub/c.jpg,cat\n"d,e.jpeg",dog\n',
        "list.jsonl": '{"file": "a b.jpg", "label": "dog"}\n{"key": "sub/c.jpg", "label": "cat"}\n'
        '{"path": "d,e.jpeg", "label": "dog"}\n',
    }[name]
    (tmp_path / name).write_text(table)
    report = put(store, tmp_path / name)
    assert report.classes == ("cat", "dog") and report.samples == 3
    assert content(swift) == {
        "a b": ("dog", picture(0)), "sub/c": ("cat", picture(1)), "d,e": ("dog", picture(2)),
    }  # fmt: skip
    (tmp_path / name).write_text(table.replace("a b.jpg", "gone.jpg"))
    with pytest.raises(BadSource, match="gone.jpg: there is no such file"):
        put(store, tmp_path / name)
    assert put(store, tmp_path / name, skip_bad=True).samples == 2


def test_a_directory_with_a_table(swift, store, tmp_path):
    root = tmp_path / "d"
    for number in range(2):
        path = root / "class 0" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    table = tmp_path / "labels.csv"
    table.write_text("class 0/0.jpg,x\nclass 0/1.jpg,y\n")
    put(store, root, labels=str(table))
    assert {name for name, _ in content(swift).values()} == {"x", "y"}
    with pytest.raises(DatasetError, match="is no directory"):
        put(store, table, labels=str(table))


def test_tars_with_json_labels(swift, store, tmp_path):
    members = {"a.jpg": picture(0), "a.json": b'{"label": 1}', "b.jpg": picture(1), "b.cls": b"0"}
    (tmp_path / "x.tar").write_bytes(tar(members))
    put(store, tmp_path / "x.tar")
    assert content(swift) == {"a": ("1", picture(0)), "b": ("0", picture(1))}
    (tmp_path / "x.tar").write_bytes(tar({"a.jpg": picture(0), "a.json": b"{}"}))
    with pytest.raises(BadSource, match="x.tar:a: .cls or .json holds no class number"):
        put(store, tmp_path / "x.tar")


@pytest.fixture
def singles(swift):
    for number in range(7):
        folder = ("cat", "dog %?#")[number % 2]
        swift.put("in", f"p/{folder}/{number}\n.jpg", picture(number))
    return swift.containers["in"]


def test_a_container_of_single_images(swift, store, singles):
    report = put(store, "swift://in/p")
    assert (report.samples, report.shards, report.uploaded) == (7, 3, 3)
    assert report.classes == ("cat", "dog %?#")
    found = content(swift)
    assert found["cat/0\n"] == ("cat", picture(0))
    assert found["dog %?#/1\n"] == ("dog %?#", picture(1))
    assert len(found) == 7
    dataset = pin(store, TARGET)
    assert dataset.samples == 7 and read_names(store, dataset)("cat/0\n") == "cat/0\n.jpg"
    assert read_names(store, pin(store, SwiftUrl("in", "p")))("p/cat/0.jpg") == "p/cat/0.jpg"


def test_a_container_again_reads_nothing_twice(swift, store, singles):
    put(store, "swift://in/p")
    whole = {name: o.body for name, o in swift.containers["out"].items()}
    swift.seen.clear()
    report = put(store, "swift://in/p")
    assert (report.uploaded, report.bytes_uploaded, report.samples) == (0, 0, 7)
    assert not [key for key in swift.seen if key[0] == "GET" and key[1].endswith(".jpg")]
    del swift.containers["out"]["d/shard-000001.tar"]
    del swift.containers["out"]["d/hapi-dataset.json"]
    swift.seen.clear()
    report = put(store, "swift://in/p")
    assert report.uploaded == 1
    assert len([key for key in swift.seen if key[0] == "GET" and key[1].endswith(".jpg")]) == 3
    assert {name: o.body for name, o in swift.containers["out"].items()} == whole


def test_a_shard_that_was_tampered_with_is_made_again(swift, store, singles):
    put(store, "swift://in/p")
    shard = swift.containers["out"]["d/shard-000000.tar"]
    good, meta = shard.body, dict(shard.meta)
    swift.put("out", "d/shard-000000.tar", b"other")
    report = put(store, "swift://in/p")
    assert report.uploaded == 1
    assert swift.containers["out"]["d/shard-000000.tar"].body == good
    assert swift.containers["out"]["d/shard-000000.tar"].meta == meta
    swift.put("in", "p/cat/0\n.jpg", picture(99))
    assert put(store, "swift://in/p").uploaded == 1
    assert content(swift)["cat/0\n"][1] == picture(99)


def test_bad_objects(swift, store, singles):
    swift.put("in", "p/cat/bad.jpg", picture(3)[:100])
    with pytest.raises(BadSource, match=r"in/p/cat/bad\.jpg: "):
        put(store, "swift://in/p")
    report = put(store, "swift://in/p", skip_bad=True)
    assert report.samples == 7 and "in/p/cat/bad.jpg" in report.skipped[0]
    assert len(content(swift)) == 7
    again = put(store, "swift://in/p", skip_bad=True)
    assert again.uploaded == 0 and again.skipped == report.skipped


def test_labels_of_objects_from_a_table_in_the_store(swift, store, singles):
    rows = "".join(f'"dog %?#/{n}\n.jpg",odd\n' for n in (1, 3, 5))
    rows += "".join(f'"p/cat/{n}\n.jpg",even\n' for n in (0, 2, 4))
    swift.put("in", "labels.csv", rows.encode())
    with pytest.raises(LabelMissing, match=r"'p/cat/6\\n.jpg' is not in swift://in/labels.csv"):
        put(store, "swift://in/p", labels="swift://in/labels.csv")
    del singles["p/cat/6\n.jpg"]
    put(store, "swift://in/p", labels="swift://in/labels.csv")
    assert content(swift)["dog %?#/1\n"] == ("odd", picture(1))


def test_what_a_container_may_not_be(swift, store, singles):
    swift.put("tars", "x.tar", build_tar([("a", "jpg", 0, picture(0))]))
    with pytest.raises(DatasetError, match="number of classes is not known"):
        put(store, "swift://tars")
    put(store, "swift://in/p")
    with pytest.raises(DatasetError, match="holds shards already"):
        upload(PutConfig("swift://out/d", SwiftUrl("out", "e")), store)
    with pytest.raises(ValueError, match="source and target are both swift://out/d"):
        put(store, "swift://out/d")


def test_an_object_that_changes_meanwhile(swift, store, singles, monkeypatch):
    listed = store.list

    def list_then_change(container, prefix=""):
        found = list(listed(container, prefix))
        if container == "in":
            swift.put("in", "p/cat/0\n.jpg", picture(50))
        return iter(found)

    monkeypatch.setattr(store, "list", list_then_change)
    with pytest.raises(Overwritten, match="overwritten"):
        put(store, "swift://in/p")


def mnist(root, count: int) -> np.ndarray:
    """The files that torchvision's MNIST reads, with made-up digits."""
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = (np.arange(count) % 10).astype(np.uint8)
    for part in ("train", "t10k"):
        header = struct.pack(">HBBIII", 0, 8, 3, count, 28, 28)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        header = struct.pack(">HBBI", 0, 8, 1, count)
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())
    return images


def test_torchvision_arrays(swift, store, tmp_path):
    images = mnist(tmp_path, 12)
    report = put(store, f"torchvision:MNIST:{tmp_path}:train=False")
    assert report.samples == 12 and report.classes[3] == "3 - three"
    for key, (name, data) in content(swift).items():
        assert name.startswith(str(int(key) % 10))
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), images[int(key)])
    assert put(store, f"torchvision:MNIST:{tmp_path}:train=False").uploaded == 0


def test_torchvision_files_stay_as_they_are(swift, store, tmp_path):
    root = class_folders(tmp_path / "d", 2, 2)
    put(store, f"torchvision:ImageFolder:{root}")
    paths = {p.read_bytes(): p for p in root.rglob("*") if p.is_file()}
    expected = {data: path.parent.name for data, path in paths.items()}
    found = content(swift)
    assert {data: name for name, data in found.values()} == expected
    name_of = read_names(store, pin(store, TARGET))
    assert {name_of(key): data for key, (_, data) in found.items()} == {
        str(path.relative_to(root)): data for data, path in paths.items()
    }


def test_torchvision_fetches_nothing_unless_told(store, tmp_path):
    with pytest.raises(DatasetError, match="CIFAR10.*--download fetches it"):
        put(store, f"torchvision:CIFAR10:{tmp_path}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("torchvision:CIFAR10", "want torchvision:NAME:ROOT"),
        ("torchvision::/x", "want torchvision:NAME:ROOT"),
        ("torchvision:MNIST:/x:train", "want torchvision:NAME:ROOT"),
        ("torchvision:Nothing:/x", "has no dataset 'Nothing'"),
        ("torchvision:vision:/x", "has no dataset"),
        ("torchvision:MNIST:/x:split=test", "MNIST takes train, not 'split'"),
        ("torchvision:MNIST:/x:download=True", "MNIST takes train, not 'download'"),
    ],
)
def test_torchvision_names(store, text, why):
    with pytest.raises(ValueError, match=why):
        put(store, text)


def test_torchvision_options():
    assert parse("torchvision:A:/b:train=False:n=3:s=x=y") == (
        "A", "/b", {"train": False, "n": 3, "s": "x=y"},
    )  # fmt: skip
