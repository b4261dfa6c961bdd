"""Names of files, and keys made of them."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace

import pytest

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.listing import pin
from hapi_compute.data.manifest import Manifest
from hapi_compute.data.names import Names, read_names
from hapi_compute.store.errors import Overwritten
from tests.unit.data.images import class_folders, picture
from tests.unit.data.packed import TARGET, content, put


def test_only_what_is_not_the_key_and_an_extension_is_listed():
    pairs = [("a", "a.jpg"), ("b", "b.png"), ("c", "c.jpg"), ("d_e", "d.e.jpg")]
    names = Names.of(pairs)
    assert names == Names.of(reversed(pairs)) == Names.from_json(names.to_json(), "n")
    assert (names.suffix, names.others) == (".jpg", {"b": "b.png", "d_e": "d.e.jpg"})
    assert [(key, names(key)) for key, _ in pairs] == pairs
    tied = [("a", "a.png"), ("b", "b.jpg")]
    assert Names.of(tied).to_json() == Names.of(tied[::-1]).to_json()


def test_names_of_files_can_be_told_from_keys(swift, store, tmp_path):
    root = tmp_path / "d"
    names = ("ü 😀/a b.jpg", "ü 😀/a.b.jpg", "ü 😀/a_b.JPG", "ü 😀/a_b.png", f"x/{'z' * 220}.jpg")
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(picture(number, "PNG" if name.endswith("png") else "JPEG"))
    report = put(store, root)
    told = read_names(store, pin(store, TARGET))
    assert {told(key): data for key, (_, data) in content(swift).items()} == {
        name: (root / name).read_bytes() for name in names
    }
    assert {key: told(key) for key in report.names} == report.names
    assert json.loads(swift.containers["out"]["d/hapi-names.json"].body)["names"] == {
        "ü 😀/a_b": "ü 😀/a.b.jpg", "ü 😀/a_b-2": "ü 😀/a_b.JPG", "ü 😀/a_b-3": "ü 😀/a_b.png",
    }  # fmt: skip
    assert (report.stale, pin(store, TARGET).stray) == (0, 0)
    assert put(store, root).uploaded == 0
    by_path = pin(store, TARGET, labels="path")
    found = by_path.shards[0].labels.of([*report.names], "x").tolist()
    assert found == [int(key.startswith("ü")) for key in report.names]


def as_ustar(body: bytes) -> bytes:
    """The tar that the earlier release made of the same members."""
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(body)) as read,
        tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for member in read:
            plain = tarfile.TarInfo(member.name)
            plain.size = member.size
            archive.addfile(plain, read.extractfile(member))
    return made.getvalue()


def test_a_dataset_of_an_earlier_release_is_gone_on_with(swift, store, tmp_path):
    """Its shards are not sent again where keys are what they were; it is read without names."""
    for name in ("cat/1.jpg", "cat/2_x-y.jpg", "dog/deep/3.jpeg", "dog/4.png"):
        (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        kind = "PNG" if name.endswith("png") else "JPEG"
        (tmp_path / "d" / name).write_bytes(picture(len(name), kind))
    put(store, tmp_path / "d")
    objects = swift.containers["out"]
    for body in (o.body for name, o in objects.items() if name.endswith(".tar")):
        assert body == as_ustar(body)
    del objects["d/hapi-names.json"]
    old = Manifest.from_json(objects["d/hapi-dataset.json"].body, "m")
    objects["d/hapi-dataset.json"].body = replace(old, names=None).to_json()
    assert read_names(store, pin(store, TARGET))("cat/1") is None
    report = put(store, tmp_path / "d")
    assert (report.uploaded, report.stale) == (0, 0)
    assert pin(store, TARGET).manifest == old.digest
    assert read_names(store, pin(store, TARGET))("dog/deep/3") == "dog/deep/3.jpeg"


def test_names_of_no_dataset_or_another(swift, store, tmp_path):
    put(store, class_folders(tmp_path / "d"))
    listed, objects = pin(store, TARGET), swift.containers["out"]
    put(store, class_folders(tmp_path / "e", 1))
    with pytest.raises(Overwritten):
        read_names(store, listed)
    objects["d/hapi-names.json"].body = b"{}"
    listed = replace(listed, names=objects["d/hapi-names.json"].etag)
    with pytest.raises(DatasetError, match="out/d/hapi-names.json: holds no names of files"):
        read_names(store, listed)
    del objects["d/hapi-names.json"]
    assert read_names(store, listed)("k") is None
    # As earlier releases left them: without names.
    assert read_names(store, replace(listed, names=None))("k") is None
