"""Predictions and accuracy from logits; where those come from is tested in tests/functional."""

from __future__ import annotations

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

from hapi_compute.infer.classify import Answers
from hapi_compute.infer.evaluate import evaluate
from hapi_compute.infer.predict import lines, softmax, top

CLASSES = ("cät", "dog", 'e"e,l')


class Classifier:
    """Answers that are made up."""

    product = SimpleNamespace(num_classes=3, name_of=CLASSES.__getitem__)

    def answers(self, progress):
        first = np.array([[9, 1, 0], [0, 3, 1]], dtype=np.float32)
        second = np.array([[0, 2, 2]], dtype=np.float32)
        yield Answers("a.tar", ("k1", "k\n2"), np.array([0, 2]), first)
        yield Answers("empty.tar", (), np.array([], dtype=np.int64), np.empty((0, 0), np.float32))
        yield Answers("b.tar", ("\U0001f600",), np.array([1]), second)


def test_scores():
    scores = softmax(np.array([[1000.0, 1000.0, -1000.0], [1, 2, 3]], dtype=np.float32))
    np.testing.assert_allclose(scores.sum(axis=1), 1)
    np.testing.assert_allclose(scores[0], [0.5, 0.5, 0], atol=1e-12)
    assert top(scores, 2).tolist() == [[0, 1], [2, 1]]


def test_jsonl():
    names = {"k\n2": "k\n.2.jpg"}
    rows = [json.loads(line) for line in lines(Classifier(), "jsonl", 2, name_of=names.get)]
    assert [r["name"] for r in rows] == [None, "k\n.2.jpg", None]
    assert [r["label"] for r in rows] == ["cät", "dog", "dog"]
    assert [r["key"] for r in rows] == ["k1", "k\n2", "\U0001f600"]
    assert [each["label"] for each in rows[2]["top"]] == ["dog", 'e"e,l']
    assert rows[2]["top"][0]["score"] == rows[2]["top"][1]["score"]


def test_csv_has_all_classes_where_more_are_asked_for():
    text = "".join(lines(Classifier(), "csv", 10))
    rows = list(csv.DictReader(text.splitlines(keepends=True)))
    assert [row["label"] for row in rows] == ["cät", "dog", "dog"]
    assert rows[1]["key"] == "k\n2" and rows[1]["label_2"] == 'e"e,l'
    assert set(rows[0]) == {
        "object", "key", "name", "label", "score", "label_2", "score_2", "label_3", "score_3",
    }  # fmt: skip


def test_evaluation():
    found = evaluate(Classifier())
    assert found.samples == 3
    assert found.top1 == pytest.approx(2 / 3) and found.top5 == 1
    assert found.confusion.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
    document = json.loads(json.dumps(found.to_dict()))
    assert document["per_class"][2] == {
        "class": 'e"e,l', "samples": 1, "recall": 0.0, "precision": None,
    }  # fmt: skip
    table = found.table()
    assert "top-1 0.6667" in table and "0.0000" in table
