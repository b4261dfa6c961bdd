"""Epochs and steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from hapi_compute.data.batches import Batch, EpochTotals, Window, training_windows
from hapi_compute.data.listing import Dataset
from hapi_compute.data.shards import Reader
from hapi_compute.store.occupancy import COMPUTE
from hapi_compute.train.config import TrainConfig, training_transform
from hapi_compute.train.errors import Diverged
from hapi_compute.train.optim import rate_factor, set_rate
from hapi_compute.train.pilot import Pilot
from hapi_compute.train.pipeline import Pipeline
from hapi_compute.train.progress import Progress
from hapi_compute.train.state import RunState
from hapi_compute.train.task import TransferTask, step_seed


@dataclass(frozen=True)
class Hooks:
    """What the loop tells its surroundings.

    ``validate()`` gives an accuracy or None; ``checkpoint(state, end_of_epoch)`` may write one;
    ``totals`` takes what an epoch's shards brought; ``pilot`` sees every iteration.
    """

    progress: Progress
    validate: Callable[[], float | None]
    checkpoint: Callable[[RunState, bool], None]
    totals: Callable[[EpochTotals], None]
    pilot: Pilot


def windows_left(config: TrainConfig, dataset: Dataset, state: RunState) -> list[Window]:
    """All windows that ``state`` has not behind it."""
    windows = []
    for epoch in range(state.epoch, config.epochs):
        skip = state.current.samples if epoch == state.epoch else 0
        windows += training_windows(dataset, config.seed, epoch, config.window, skip)
    return windows


def train(
    config: TrainConfig,
    dataset: Dataset,
    windows: list[Window],
    reader: Reader,
    pipeline: Pipeline,
    task: TransferTask,
    optimizer: torch.optim.Optimizer,
    state: RunState,
    hooks: Hooks,
) -> None:
    """Run the epochs that ``state`` has not behind it, and bring ``state`` up to date.

    :param windows: :func:`windows_left`
    :param reader: of the dataset's shards
    :raises Diverged: the loss is infinite or no number
    :raises HapiError: what reading the data raised
    """
    factor = rate_factor(config, dataset.samples)
    steps = None
    if dataset.samples is not None:
        steps = math.ceil(dataset.samples / config.batch_size)

    def transform(epoch: int):
        return training_transform(config.transform, config.seed, epoch)

    if state.epoch >= config.epochs:
        return
    with pipeline.loader(dataset, windows, transform, reader) as loader:
        while state.epoch < config.epochs:
            hooks.progress.epoch_starts(state.epoch, config.epochs, steps, state.current.steps)
            before, started = state.current.seconds, time.perf_counter()
            batches = loader.epoch()
            while True:
                with pipeline.timings.measure("wait"):
                    batch = next(batches, None)
                if batch is None:
                    break
                begun = time.perf_counter()
                set_rate(optimizer, config.lr * factor(state.step))
                _step(config, batch, pipeline, task, optimizer, state)
                state.current.seconds = before + time.perf_counter() - started
                hooks.progress.step(state.epoch, state.step - 1, state.step_losses[-1])
                hooks.pilot.after(state.step - 1, batch, time.perf_counter() - begun)
                hooks.checkpoint(state, False)
            state.current.bytes_received += loader.totals.bytes_received
            hooks.totals(loader.totals)
            state.current.val_accuracy = hooks.validate()
            if state.current.val_accuracy is not None:
                hooks.pilot.pause()
            state.close_epoch()
            hooks.progress.epoch_ends(state.epoch - 1, _summary(state, config.epochs))
            hooks.checkpoint(state, True)


def _step(
    config: TrainConfig,
    batch: Batch,
    pipeline: Pipeline,
    task: TransferTask,
    optimizer: torch.optim.Optimizer,
    state: RunState,
) -> None:
    seed = step_seed(config.seed, state.epoch, state.current.steps)
    loss, correct = task.loss(batch, seed)
    value = loss.item()
    if not math.isfinite(value):
        raise Diverged(
            f"epoch {state.epoch + 1}, step {state.current.steps + 1}: the loss is {value}; a "
            f"lower lr than {config.lr} may help"
        )
    with pipeline.timings.measure("trainable", COMPUTE):
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    state.step_losses.append(value)
    state.current.add(value, correct, len(batch.labels))


def _summary(state: RunState, epochs: int) -> str:
    record = state.epochs[-1]
    text = (
        f"epoch {record.epoch + 1}/{epochs}: loss {record.loss:.4f}, accuracy "
        f"{record.accuracy:.3f}, {record.seconds:.1f} s, {record.bytes_received / 1e6:.2f} MB"
    )
    if record.val_accuracy is not None:
        text += f", validation {record.val_accuracy:.3f}"
    return text
