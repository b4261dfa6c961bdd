"""Epochs and steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from hapi_compute.data.batches import EpochTotals
from hapi_compute.data.listing import Dataset
from hapi_compute.data.shards import Reader
from hapi_compute.data.windows import Layout, Window, training_windows
from hapi_compute.train.config import TrainConfig, training_transform
from hapi_compute.train.convoy import Convoy
from hapi_compute.train.distributed import World
from hapi_compute.train.evaluate import Scores
from hapi_compute.train.journal import Journal
from hapi_compute.train.optim import rate_factor
from hapi_compute.train.pilot import Pilot
from hapi_compute.train.pipeline import Pipeline
from hapi_compute.train.progress import Progress
from hapi_compute.train.saving import Saver
from hapi_compute.train.state import RunState
from hapi_compute.train.stepper import Stepper


@dataclass(frozen=True)
class Hooks:
    """What the loop tells its surroundings.

    ``validate()`` gives scores or None; ``totals`` takes what an epoch's shards brought; ``pilot``
    sees every iteration. Progress and journal are the first rank's affair; the others' are silent.
    """

    progress: Progress
    journal: Journal
    validate: Callable[[], Scores | None]
    saver: Saver
    totals: Callable[[EpochTotals], None]
    pilot: Pilot | Convoy


def windows_left(config: TrainConfig, dataset: Dataset, state: RunState) -> list[Window]:
    """All windows that ``state`` has not behind it."""
    windows = []
    if state.stopped:
        return windows
    for epoch in range(state.epoch, config.epochs):
        begin = state.current.steps * config.batch_size if epoch == state.epoch else 0
        windows += training_windows(dataset, config.seed, epoch, config.window, begin)
    return windows


def train(
    config: TrainConfig,
    dataset: Dataset,
    windows: list[Window],
    layout: Layout,
    reader: Reader,
    pipeline: Pipeline,
    stepper: Stepper,
    world: World,
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

    def transform(epoch: int):
        return training_transform(config.transform, config.seed, epoch)

    if not windows:
        return
    with pipeline.loader(dataset, windows, transform, reader, layout) as loader:
        while state.epoch < config.epochs and not state.stopped:
            steps, current = layout.step_count, state.current
            hooks.progress.epoch_starts(state.epoch, config.epochs, steps, current.steps)
            before, started = current.seconds, time.perf_counter()
            batches = loader.epoch()
            while True:
                with pipeline.timings.measure("wait"):
                    batch = next(batches, None)
                if batch is None:
                    break
                begun = time.perf_counter()
                rate = config.lr * factor(state.step)
                found = stepper.step(batch, state, rate, batch.step + 1 == steps)
                state.step_losses.append(found.loss)
                current.add(found.loss, found.correct, found.samples, found.correct5)
                current.seconds = before + time.perf_counter() - started
                hooks.progress.step(state.epoch, state.step - 1, found.loss)
                hooks.journal.step(state, found.loss, rate)
                # Waiting for the slower ranks is no work of this one.
                took = time.perf_counter() - begun - found.waited
                hooks.pilot.after(state.step - 1, batch, took)
                if found.updated:
                    hooks.saver.within_epoch(state)
            stepper.update(config.lr * factor(state.step - 1))
            (received,) = world.add_up((loader.totals.bytes_received,))
            current.bytes_received += int(received)
            hooks.totals(loader.totals)
            _close(config, state, hooks)


def _close(config: TrainConfig, state: RunState, hooks: Hooks) -> None:
    scores = hooks.validate()
    if scores is not None:
        record = state.current
        record.val_accuracy, record.val_top5 = scores.accuracy, scores.top5
        record.val_loss = scores.loss
        hooks.pilot.pause()
    better = state.close_epoch()
    state.stopped = config.patience is not None and state.without_gain() >= config.patience
    hooks.progress.epoch_ends(state.epoch - 1, _summary(state, config.epochs))
    hooks.journal.epoch(state)
    if state.stopped and state.epoch < config.epochs:
        hooks.progress.note(
            f"no better validation for {config.patience} epochs: stopped after {state.epoch}"
        )
    hooks.saver.end_of_epoch(state, better)


def _summary(state: RunState, epochs: int) -> str:
    record = state.epochs[-1]
    text = (
        f"epoch {record.epoch + 1}/{epochs}: loss {record.loss:.4f}, accuracy "
        f"{record.accuracy:.3f}, {record.seconds:.1f} s, {record.bytes_received / 1e6:.2f} MB"
    )
    if record.val_accuracy is not None:
        text += f", validation {record.val_accuracy:.3f}"
    return text
