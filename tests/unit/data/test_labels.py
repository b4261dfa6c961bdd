from __future__ import annotations

import pickle

import numpy as np
import pytest

from hapi_compute.data.errors import DatasetError, LabelMissing
from hapi_compute.data.labels import LabelTable, PathLabels, parse_table
from hapi_compute.data.listing import Shard, align_to, pin
from hapi_compute.data.shards import label_array
from hapi_compute.store.names import SwiftUrl
from tests.unit.data.test_listing import URL, Store, manifest


@pytest.mark.parametrize(
    "text",
    [
        b"key,label\na/1,cat\nb 2,dog\n",
        b"\xef\xbb\xbfa/1,cat\r\nb 2,dog\r\n",
        b'other,label,key\nx,cat,a/1\n\ny,"dog",b 2\n',
        b'{"key": "a/1", "label": "cat"}\n\n{"label": "dog", "key": "b 2", "more": 1}\n',
    ],
)
def test_tables(text):
    table, classes = parse_table(text, "t").numbered()
    assert classes == ("cat", "dog")
    assert table.of(["b 2", "a/1", "b 2"], "o").tolist() == [1, 0, 1]


def test_keys_of_any_kind():
    names = ["a,b", 'quo"te', "new\nline", "\u2028", "\U0001f600"]
    rows = "".join('"{}",{}\n'.format(n.replace('"', '""'), i) for i, n in enumerate(names))
    table, classes = parse_table(rows.encode(), "t").numbered()
    assert table.of(names, "o").tolist() == [0, 1, 2, 3, 4] and classes == tuple("01234")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "no labels"),
        (b"key,label\n", "no labels"),
        (b"just a line\n", "t:1: want columns"),
        (b"a,b,c\n", "t:1: want columns"),
        (b"key,label\na\n", "t:2: want columns"),
        (b"a,0\na,1\n", "t:2: 'a' has two labels"),
        (b'{"key": "a"}', "t:1: want"),
        (b'{"key": "a", "label": true}', "t:1: want"),
        (b'{"key": 3, "label": 1}', "t:1: want"),
        (b"\xff\xfe,1", "UTF-8"),
    ],
)
def test_bad_tables(text, why):
    with pytest.raises(DatasetError, match=why):
        parse_table(text, "t")


def test_numbers_stand_for_themselves_unless_they_are_names():
    raw = parse_table(b"a,7\nb,1\n", "t")
    assert raw.numbered()[0].numbers == {"a": 7, "b": 1}
    assert len(raw.numbered()[1]) == 8
    assert raw.numbered(("1", "7"))[0].numbers == {"a": 1, "b": 0}
    assert raw.numbered(tuple("abcdefgh"))[0].numbers == {"a": 7, "b": 1}
    with pytest.raises(DatasetError, match="label '7' of 'a' is none of the 3 classes"):
        raw.numbered(("x", "y", "z"))
    with pytest.raises(DatasetError, match="'dog' of 'b'"):
        parse_table(b"a,cat\nb,dog\n", "t").numbered(("cat",))


def test_a_missing_key_is_named():
    table = LabelTable("swift://c/t.csv", {"a": 0, "p/b": 1, "c": 1}, "p/")
    assert table.of(["a", "p/b", "p/c"], "c/o").tolist() == [0, 1, 1]
    with pytest.raises(LabelMissing, match="c/o: sample 'p/d' is not in swift://c/t.csv"):
        table.of(["a", "p/d"], "c/o")
    path = PathLabels({"cat": 0, "dog": 1})
    assert path.of(["x/dog/1", "cat//2"], "c/o").tolist() == [1, 0]
    with pytest.raises(LabelMissing, match="'cow/1' lies in folder 'cow'"):
        path.of(["cat/1", "cow/1"], "c/o")
    with pytest.raises(LabelMissing, match="'1' has none"):
        path.of(["1"], "c/o")


def test_labels_of_a_shard_come_from_the_table():
    shard = Shard("s.tar", "e", 1, labels=LabelTable("t", {"a": 3, "b": 1}))
    assert label_array([0, 0], ("a", "b"), shard, "c/s.tar", 4).tolist() == [3, 1]
    with pytest.raises(LabelMissing, match="'a' has label 3, there are 2 classes"):
        label_array([0, 0], ("a", "b"), shard, "c/s.tar", 2)
    again = pickle.loads(pickle.dumps(shard))
    assert again.labels.of(["b"], "x").tolist() == [1]


def test_unlabelled_is_allowed_where_it_is_asked_for():
    got = label_array([-1, 5], ("a", "b"), Shard("s", "e", 1), "w", None)
    assert got.dtype == np.int64 and got.tolist() == [-1, 5]


def table_file(tmp_path, text: str) -> str:
    path = tmp_path / "labels.csv"
    path.write_text(text)
    return str(path)


def test_a_table_labels_foreign_tars_and_loose_images(tmp_path):
    place = table_file(tmp_path, "1.jpg,cat\np/2.jpg,dog\n")
    tars = pin(Store("p/a.tar", "p/b.tar"), URL, labels=place)
    assert tars.classes == ("cat", "dog") and tars.named
    loose = pin(Store("p/1.jpg", "p/2.jpg"), URL, labels=place)
    assert loose.single and loose.classes == ("cat", "dog")
    found = [s.labels.of([s.name], "w")[0] for s in loose.shards]
    assert found == [0, 1]
    swapped = table_file(tmp_path, "1.jpg,dog\n2.jpg,cat")
    other = pin(Store("p/1.jpg", "p/2.jpg"), URL, labels=swapped)
    assert other.digest != loose.digest


def test_a_table_speaks_of_the_classes_of_the_manifest(tmp_path):
    store = Store("p/1.tar", manifest=manifest("1.tar"))
    dataset = pin(store, URL, labels=table_file(tmp_path, "k,b\n"))
    assert dataset.classes == ("a", "b")
    assert dataset.shards[0].labels.numbers == {"k": 1}
    with pytest.raises(DatasetError, match="'c' of 'k'"):
        pin(store, URL, labels=table_file(tmp_path, "k,c\n"))


def test_labels_from_the_path():
    dataset = pin(Store("p/1.tar", manifest=manifest("1.tar")), URL, labels="path")
    assert dataset.shards[0].labels.of(["x/b/7"], "w").tolist() == [1]
    with pytest.raises(DatasetError, match="label by a table"):
        pin(Store("p/1.tar"), URL, 3, labels="path")
    images = pin(Store("p/x/1.jpg", "p/y/1.jpg"), URL, labels="path")
    assert [s.label for s in images.shards] == [0, 1]


def test_unlabelled_datasets():
    tars = pin(Store("p/1.tar"), URL, unlabelled=True)
    assert tars.classes == () and not tars.single
    loose = pin(Store("p/1.jpg", "p/a/2.jpg"), URL, unlabelled=True)
    assert loose.classes == () and loose.single and loose.samples == 2
    folders = pin(Store("p/b/1.jpg", "p/a/2.jpg"), URL, unlabelled=True)
    assert folders.classes == ("a", "b")


def test_numbered_classes_are_taken_as_they_are():
    foreign = pin(Store("p/1.tar"), SwiftUrl("c", "p"), 2)
    assert align_to(foreign, ("cat", "dog", "eel"), "x").classes == ("cat", "dog", "eel")
    with pytest.raises(DatasetError, match="'0', which is unknown to x"):
        align_to(pin(Store("p/0/1.jpg", "p/1/1.jpg"), URL), ("cat", "dog"), "x")
