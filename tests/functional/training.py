"""What the tests of upload and training share: digits as images, a client, a small run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from hapi_compute import train
from hapi_compute.data.uploader import PutConfig, PutReport, upload
from hapi_compute.store.auth import Credentials
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.names import SwiftUrl
from hapi_compute.store.retry import RetryPolicy
from hapi_compute.train.config import TrainConfig
from hapi_compute.train.progress import Progress
from hapi_compute.train.report import Report

#: the two runs that are compared may differ by so much in the loss of any step
RTOL = 1e-4


def client_of(cluster, user: str | None = None, storage_url: str | None = None, **policy):
    """A client; ``policy`` are options of :class:`RetryPolicy`."""
    users = {known.name: known.key for known in cluster.config.users}
    user = user or cluster.user
    credentials = Credentials(cluster.auth_url, user, users[user], storage_url)
    return SwiftClient(credentials, policy=RetryPolicy(**policy))


def digit_folders(root: Path, first: int, count: int) -> Path:
    """Real handwritten digits as 72 px JPEGs, a folder for each class."""
    digits = load_digits()
    for i in range(first, first + count):
        folder = root / str(digits.target[i])
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((digits.images[i] * 15.9).astype(np.uint8))
        image.resize((72, 72)).convert("RGB").save(folder / f"digit {i}.jpg", quality=90)
    return root


def put(client: SwiftClient, source: Path | str, target: str, **options) -> PutReport:
    options = {"shard_samples": 10, "jobs": 2} | options
    return upload(PutConfig(source, SwiftUrl.parse(target), **options), client)


def config(dataset: str, **options) -> TrainConfig:
    """A run of a few seconds: resnet18 with random weights, frozen up to its third stage."""
    defaults = {
        "model": "resnet18",
        "weights": "random:7",
        "freeze_at": "layer3",
        "transform": "resize=64x64, mean=(0.5), std=(0.25)",
        "epochs": 2,
        "batch_size": 12,
        # Adam would blow differences in the last bit up to the size of the learning rate.
        "optimizer": "sgd",
        "lr": 0.005,
        "window": 2,
        "micro_batch": 8,
        "threads": 1,
        "decode_threads": 1,
        "seed": 3,
    }
    return TrainConfig(dataset, **defaults | options)


def run(client: SwiftClient, dataset: str, progress: Progress | None = None, **options) -> Report:
    return train.run(config(dataset, **options), client, progress)


class AtStep(Progress):
    """Does something once, after a step (counted from 1 over the whole run)."""

    def __init__(self, step: int, action):
        self._step = step
        self._action = action

    def step(self, epoch: int, step: int, loss: float) -> None:
        if step + 1 == self._step:
            self._action()


def assert_same_losses(report: Report, reference: Report) -> None:
    assert len(report.step_losses) == len(reference.step_losses) > 0
    np.testing.assert_allclose(report.step_losses, reference.step_losses, rtol=RTOL)
