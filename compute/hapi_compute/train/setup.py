"""What a run is made of: dataset, model cut at its freeze point, options with their defaults."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn

from hapi_compute.data import order
from hapi_compute.data.inspection import counted, tensor_shape
from hapi_compute.data.listing import Dataset, align, pin
from hapi_compute.data.timings import Timings
from hapi_compute.models import load_model
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.names import SwiftUrl
from hapi_compute.train import hook
from hapi_compute.train.augment import augmented
from hapi_compute.train.balance import class_weights
from hapi_compute.train.config import AUTO, RAW, TrainConfig, training_transform
from hapi_compute.train.distributed import World
from hapi_compute.train.hook import TrainingTask
from hapi_compute.train.precision import resolve
from hapi_compute.train.split_names import find_cut
from hapi_compute.train.threads import beside_a_store
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.split import build_transfer
from swift_hapi.protocol.errors import BadCut, BadTransform
from swift_hapi.protocol.headers import TRANSFORM
from swift_hapi.protocol.transform import TransformSpec

#: ``transform`` for datasets of tensors, which need none
NO_TRANSFORM = "none"


@dataclass(frozen=True)
class Parts:
    """:param whole: the dataset with what is held out of ``dataset`` for ``validation``"""

    config: TrainConfig
    whole: Dataset
    dataset: Dataset
    validation: Dataset
    test: Dataset | None
    num_classes: int
    input_shape: tuple[int, ...]
    extractor: Extractor
    trainable: nn.Module
    timings: Timings
    hook: TrainingTask
    class_weights: tuple[float, ...] | None = None

    def tail_extractor(self, device: torch.device) -> Extractor:
        """The extractor with its weights on ``device``."""
        return self.extractor if device.type == "cpu" else self.extractor.to(device)


def prepare(config: TrainConfig, store: SwiftClient, world: World | None = None) -> Parts:
    """Pin the dataset, load the model, cut it.

    A collective call; what is read for this, the first rank reads for all.

    :raises ValueError: an option does not suit model or data
    :raises HapiError: what store or data raised
    """
    world = world or World()
    timings = Timings(store.occupancy)
    with timings.measure("start"):
        # On GPUs of several kinds the first rank's says what they all do.
        precision = world.on_first(lambda: resolve(config.precision, world.device))
        config = replace(config, precision=precision)
        if config.threads is None and store.on_this_machine:
            config = replace(config, threads=beside_a_store())
        # One listing for all ranks: two might differ.
        whole, test = world.on_first(lambda: _listed(config, store, world))
        num_classes = _num_classes(config, whole)
        kept, held = order.hold_out(config.seed, len(whole.shards), config.val_split)
        dataset, validation = whole.subset(kept), whole.subset(held)
        loaded = load_model(config.model, config.weights)
        config = _with_transform(config, loaded.transform)
        _spec(config)  # So that an error names the option that is at fault.
        config = augmented(config)
        spec = _spec(config)
        if spec is None:
            input_shape = world.on_first(lambda: tensor_shape(store, dataset))
        else:
            input_shape = (3, *spec.size)
        try:
            extractor, trainable = build_transfer(
                loaded.module, config.freeze_at, num_classes, config.seed, input_shape
            )
        except BadCut as error:
            raise ValueError(f"freeze_at={config.freeze_at!r}: {error.detail}") from None
        if config.split not in (AUTO, RAW):
            cut = find_cut(config.split, extractor, loaded.module, input_shape)
            config = replace(config, split=cut.name)
        weights = world.on_first(lambda: class_weights(config, whole, store, num_classes))
        task = hook.load(config.task, config.label_smoothing)
        trainable = _head(task, trainable, extractor, num_classes, config.seed)
    return Parts(
        config, whole, dataset, validation, test, num_classes, input_shape, extractor, trainable,
        timings, task, weights,
    )  # fmt: skip


def _listed(
    config: TrainConfig, store: SwiftClient, world: World
) -> tuple[Dataset, Dataset | None]:
    """What to train on, with samples counted where several ranks must know them; the test set."""
    whole = pin(store, SwiftUrl.parse(config.dataset), config.num_classes, config.labels)
    if world.size > 1 and whole.samples is None:
        whole = counted(whole, store, config.concurrency)
    return whole, _test_set(config, store, whole)


def _head(
    task: TrainingTask, rest: nn.Module, extractor: Extractor, num_classes: int, seed: int
) -> nn.Module:
    """What the task makes of the rest, the same for the same seed.

    :raises ValueError: it makes no module, or one that has nothing to train
    """
    features = torch.zeros(extractor.cuts[-1].shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = task.head(rest, features, num_classes)
        if not isinstance(made, nn.Module):
            raise ValueError(f"the task's head is {type(made).__name__}, not an nn.Module")
        if isinstance(task, hook.Guarded):
            task.try_head(made, features)
    if not any(parameter.requires_grad for parameter in made.parameters()):
        raise ValueError("freeze_at: there is nothing left to train behind it")
    return made


def _spec(config: TrainConfig) -> TransformSpec | None:
    try:
        return training_transform(config.transform, config.seed, 0)
    except BadTransform as error:
        why = error.detail.removeprefix(f"{TRANSFORM}: ")
        raise ValueError(f"transform={config.transform!r}: {why}") from None


def _num_classes(config: TrainConfig, dataset: Dataset) -> int:
    if config.num_classes is not None and config.num_classes < len(dataset.classes):
        raise ValueError(
            f"num_classes={config.num_classes}: {dataset.url} has {len(dataset.classes)} classes"
        )
    return config.num_classes or len(dataset.classes)


def _test_set(config: TrainConfig, store: SwiftClient, train: Dataset) -> Dataset | None:
    if config.test is None:
        return None
    url = SwiftUrl.parse(config.test)
    return align(pin(store, url, config.num_classes, config.labels), train)


def _with_transform(config: TrainConfig, default: str | None) -> TrainConfig:
    if config.transform == NO_TRANSFORM:
        return replace(config, transform=None)
    config = config.with_transform(default)
    if config.transform is None:
        raise ValueError(f"transform: {config.model} has no default; give one")
    return config
