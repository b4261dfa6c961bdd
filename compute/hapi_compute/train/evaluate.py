"""Top-1 accuracy on a dataset, in listing order."""

from __future__ import annotations

import torch

from hapi_compute.data.batches import EpochTotals, sequential_windows
from hapi_compute.data.listing import Dataset
from hapi_compute.plan.candidates import Candidate
from hapi_compute.train.config import evaluation_transform
from hapi_compute.train.pipeline import Pipeline
from hapi_compute.train.task import TransferTask


def accuracy(
    pipeline: Pipeline, candidate: Candidate, dataset: Dataset, task: TransferTask
) -> tuple[float, EpochTotals]:
    """Part of the samples whose most likely class is their label, and what reading them took."""
    spec = evaluation_transform(pipeline.config.transform, pipeline.config.test_transform)
    correct = total = 0
    with pipeline.timings.measure("evaluate"):
        reader = pipeline.reader(dataset.url.container, candidate)
        windows = sequential_windows(dataset)
        with pipeline.loader(dataset, windows, lambda epoch: spec, reader) as loader:
            for batch in loader.epoch():
                answers = task.predict(batch).argmax(1)
                correct += int((answers == torch.from_numpy(batch.labels)).sum())
                total += len(batch.labels)
            return correct / total, loader.totals
