"""``hapi predict``: the most likely classes of every sample, as lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator

import numpy as np

from hapi_compute.infer.classify import Answers, Classifier, Progress

FORMATS = ("jsonl", "csv")


def softmax(logits: np.ndarray) -> np.ndarray:
    """Scores of each row, that add up to 1; float64 [n, classes]."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    powers = np.exp(shifted)
    return powers / powers.sum(axis=1, keepdims=True)


def top(scores: np.ndarray, count: int) -> np.ndarray:
    """Classes of each row by falling score, equal scores by number; int64 [n, count]."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


def lines(
    classifier: Classifier,
    form: str,
    count: int,
    progress: Progress = lambda done, total: None,
    name_of: Callable[[str], str | None] = lambda key: None,
) -> Iterator[str]:
    """One line for each sample, for ``csv`` after a header; each ends in a line break.

    :param form: one of ``FORMATS``
    :param count: classes on each line; more than there are means all
    :param name_of: name of a sample's file by its key
    """
    count = min(count, classifier.product.num_classes)
    if form == "csv":
        more = [f"{what}_{n}" for n in range(2, count + 1) for what in ("label", "score")]
        yield _csv(["object", "key", "name", "label", "score", *more])
    for answers in classifier.answers(progress):
        for key, found in _ranked(classifier, answers, count):
            if form == "csv":
                flat = [cell for label, score in found for cell in (label, f"{score:.6g}")]
                yield _csv([answers.shard, key, name_of(key) or "", *flat])
            else:
                row = {
                    "object": answers.shard,
                    "key": key,
                    "name": name_of(key),
                    "label": found[0][0],
                    "score": round(found[0][1], 6),
                    "top": [{"label": label, "score": round(s, 6)} for label, s in found],
                }
                yield json.dumps(row, ensure_ascii=False) + "\n"


def _ranked(
    classifier: Classifier, answers: Answers, count: int
) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    if not answers.keys:
        return
    scores = softmax(answers.logits)
    for key, row, best in zip(answers.keys, scores, top(scores, count), strict=True):
        yield key, [(classifier.product.name_of(int(n)), float(row[n])) for n in best]


def _csv(cells: list[str]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow(cells)
    return stream.getvalue()
