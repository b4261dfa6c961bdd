"""Accuracy on a dataset; every rank looks at its part of the shards."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hapi_compute.data.batches import Batch, EpochTotals
from hapi_compute.data.listing import Dataset
from hapi_compute.data.windows import sequential_windows
from hapi_compute.plan.candidates import Candidate
from hapi_compute.train.config import evaluation_transform
from hapi_compute.train.distributed import World
from hapi_compute.train.pipeline import Pipeline
from hapi_compute.train.task import TransferTask, among

#: a matrix of more classes would be no help to anybody
MOST_CLASSES = 1000


@dataclass(frozen=True)
class Scores:
    """``accuracy`` is the part of the samples whose likeliest class is their label, ``top5`` of
    those whose label is among the five likeliest; ``loss`` is a mean. ``confusion[i][j]`` counts
    samples of class i taken for j; None with more classes than anybody would look at."""

    samples: int
    accuracy: float
    top5: float
    loss: float
    confusion: list[list[int]] | None

    def to_dict(self) -> dict:
        return dict(self.__dict__)


class Tally:
    """Adds up over batches."""

    def __init__(self, classes: int):
        self._classes = classes
        self._confusion = None
        if classes <= MOST_CLASSES:
            self._confusion = torch.zeros(classes, classes, dtype=torch.int64)
        self._sums = [0, 0, 0, 0.0]

    def add(self, batch: Batch, scores: torch.Tensor, loss: float) -> None:
        """:param loss: sum over the batch"""
        labels = torch.from_numpy(batch.labels)
        told = scores.argmax(1)
        if self._confusion is not None:
            pairs = torch.bincount(labels * self._classes + told, minlength=self._classes**2)
            self._confusion += pairs.view(self._confusion.shape)
        found = (len(labels), int((told == labels).sum()), among(scores, labels), loss)
        self._sums = [a + b for a, b in zip(self._sums, found, strict=True)]

    def scores(self, world: World) -> Scores:
        """Of all ranks together; a collective call."""
        samples, correct, correct5, loss = world.add_up(self._sums)
        confusion = None
        if self._confusion is not None:
            confusion = world.add_up_tensor(self._confusion).tolist()
        return Scores(
            int(samples), correct / samples, correct5 / samples, loss / samples, confusion
        )


def evaluate(
    pipeline: Pipeline,
    candidate: Candidate,
    dataset: Dataset,
    task: TransferTask,
    world: World,
) -> tuple[Scores, EpochTotals]:
    """Scores of all ranks together, and what reading this rank's part took."""
    spec = evaluation_transform(pipeline.config.transform, pipeline.config.test_transform)
    tally, totals = Tally(pipeline.num_classes), EpochTotals()
    world.align_buffers(task.trainable)
    with pipeline.timings.measure("evaluate"):
        windows = sequential_windows(dataset, (world.rank, world.size))
        if windows:
            reader = pipeline.reader(dataset.url.container, candidate)
            with pipeline.loader(dataset, windows, lambda epoch: spec, reader) as loader:
                for batch in loader.epoch():
                    tally.add(batch, *task.predict(batch))
                totals = loader.totals
        return tally.scores(world), totals
