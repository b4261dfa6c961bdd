"""``hapi eval``: how often a product is right, and what it takes for what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hapi_compute.infer.classify import Classifier, Progress
from hapi_compute.infer.predict import top

#: classes up to which the table shows the whole confusion matrix
_WIDEST = 20
#: confusions that the table names where it does not
_SHOWN = 10


@dataclass(frozen=True)
class Evaluation:
    """``confusion[label, answer]`` counts samples; int64 [classes, classes].

    ``loss`` is the mean cross entropy.
    """

    classes: tuple[str, ...]
    samples: int
    top1: float
    top5: float
    loss: float
    confusion: np.ndarray

    def per_class(self) -> list[dict]:
        """Recall and precision of each class; None where there is nothing to divide by."""
        found = []
        for label, name in enumerate(self.classes):
            right = int(self.confusion[label, label])
            there = int(self.confusion[label].sum())
            said = int(self.confusion[:, label].sum())
            found.append(
                {
                    "class": name,
                    "samples": there,
                    "recall": right / there if there else None,
                    "precision": right / said if said else None,
                }
            )
        return found

    def to_dict(self) -> dict:
        return {
            "samples": self.samples,
            "top1": self.top1,
            "top5": self.top5,
            "loss": self.loss,
            "classes": list(self.classes),
            "per_class": self.per_class(),
            "confusion": self.confusion.tolist(),
        }

    def table(self) -> str:
        """For people."""
        text = [
            f"{self.samples} samples: top-1 {self.top1:.4f}, top-5 {self.top5:.4f}, "
            f"loss {self.loss:.4f}"
        ]
        if len(self.classes) <= _WIDEST:
            text += ["", "rows: label, columns: answer", *self._matrix()]
        else:
            worst = [
                (int(self.confusion[i, j]), self.classes[i], self.classes[j])
                for i, j in zip(*np.nonzero(self.confusion), strict=True)
                if i != j
            ]
            for count, label, answer in sorted(worst, key=lambda each: -each[0])[:_SHOWN]:
                text.append(f"{count:6d} of {label!r} taken for {answer!r}")
        return "\n".join(text)

    def _matrix(self) -> list[str]:
        names = [_short(name) for name in self.classes]
        wide = max([len(name) for name in names] + [5])
        head = " " * wide + "".join(f" {name:>{wide}}" for name in names) + "   recall"
        lines = [head]
        for name, row, part in zip(names, self.confusion, self.per_class(), strict=True):
            recall = "      -" if part["recall"] is None else f"{part['recall']:7.4f}"
            lines.append(f"{name:>{wide}}" + "".join(f" {n:{wide}d}" for n in row) + f"  {recall}")
        return lines


def evaluate(
    classifier: Classifier, progress: Progress = lambda done, total: None
) -> Evaluation:
    """Run over all samples.

    :raises LabelMissing: a sample has no label, or one that the product does not know
    """
    product = classifier.product
    count = product.num_classes
    confusion = np.zeros((count, count), dtype=np.int64)
    first = five = total = 0
    loss = 0.0
    for answers in classifier.answers(progress):
        if not answers.keys:
            continue
        labels, logits = answers.labels, answers.logits.astype(np.float64)
        best = top(logits, 5)
        np.add.at(confusion, (labels, best[:, 0]), 1)
        first += int((best[:, 0] == labels).sum())
        five += int((best == labels[:, None]).any(axis=1).sum())
        high = logits.max(axis=1)
        log_sum = high + np.log(np.exp(logits - high[:, None]).sum(axis=1))
        loss += float((log_sum - logits[np.arange(len(labels)), labels]).sum())
        total += len(labels)
    names = tuple(product.name_of(label) for label in range(count))
    divisor = max(total, 1)
    return Evaluation(names, total, first / divisor, five / divisor, loss / divisor, confusion)


def _short(name: str) -> str:
    name = " ".join(name.split())
    return name if len(name) <= 12 else name[:11] + "~"
