"""One training run from options to report."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from hapi_compute.data import order
from hapi_compute.data.batches import EpochTotals
from hapi_compute.data.listing import Dataset, align, pin
from hapi_compute.data.readers import tensor_shape
from hapi_compute.data.timings import Timings
from hapi_compute.models import load_model
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import PushdownUnavailable
from hapi_compute.store.names import SwiftUrl
from hapi_compute.train import checkpoint, loop, product
from hapi_compute.train.config import TrainConfig, training_transform
from hapi_compute.train.evaluate import accuracy
from hapi_compute.train.optim import build_optimizer
from hapi_compute.train.pipeline import Pipeline, decode_pool
from hapi_compute.train.plan import Plan, choose
from hapi_compute.train.progress import Progress
from hapi_compute.train.report import Report
from hapi_compute.train.state import RunState
from hapi_compute.train.task import TransferTask
from hapi_compute.train.threads import shared_cpus
from hapi_compute.train.upload_model import ensure_uploaded
from swift_hapi.graph.allocator import keep_freed_memory
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.split import build_transfer

#: ``transform`` for datasets of tensors, which need none
NO_TRANSFORM = "none"


def run(config: TrainConfig, store: SwiftClient, progress: Progress | None = None) -> Report:
    """Train, evaluate, and write checkpoint and model where ``config.out`` says.

    :param store: client of the account that the dataset lies in
    :raises ValueError: an option does not suit model or data
    :raises HapiError: what store, data or training raised
    """
    progress = progress or Progress()
    keep_freed_memory()
    started, counted = time.perf_counter(), store.counters.snapshot()
    timings = Timings()
    with timings.measure("start"):
        whole = pin(store, SwiftUrl.parse(config.dataset), config.num_classes)
        num_classes = _num_classes(config, whole)
        test = _test_set(config, store, whole)
        kept, held = order.hold_out(config.seed, len(whole.shards), config.val_split)
        dataset, validation = whole.subset(kept), whole.subset(held)
        loaded = load_model(config.model, config.weights)
        config = _with_transform(config, loaded.transform)
        spec = training_transform(config.transform, config.seed, 0)
        input_shape = tensor_shape(store, dataset) if spec is None else (3, *spec.size)
        extractor, trainable = build_transfer(
            loaded.module, config.freeze_at, num_classes, config.seed, input_shape
        )
        plan = _plan(config, store, extractor, input_shape, whole)
        progress.note(f"split {plan.split}: {plan.reason}")
        model_container = None
        if plan.cut is not None:
            model_container, sent = ensure_uploaded(extractor, store)
            if sent:
                progress.note(f"uploaded the extractor file {extractor.digest}")
    report = Report(plan, config.model, config.seed, samples=whole.samples or 0)

    def totals(brought: EpochTotals) -> None:
        report.fallbacks += brought.fallbacks
        for step, seconds in brought.storage.items():
            report.storage[step] = report.storage.get(step, 0.0) + seconds

    with shared_cpus(config, raw=plan.cut is None), decode_pool(config) as pool:
        pipeline = Pipeline(
            config, store, extractor, input_shape, plan.cut, model_container, num_classes,
            timings, pool,
        )  # fmt: skip
        cut = plan.cut if plan.cut is not None else extractor.cuts[0]
        task = TransferTask(extractor, trainable, cut, timings)
        optimizer = build_optimizer(config, trainable)

        def evaluate(data: Dataset) -> float:
            found, brought = accuracy(pipeline, data, task)
            totals(brought)
            return found

        saver = _Saver(config, dataset, extractor, trainable, optimizer, timings)
        state = saver.load(progress)
        hooks = loop.Hooks(
            progress,
            validate=lambda: evaluate(validation) if validation.shards else None,
            checkpoint=saver,
            totals=totals,
        )
        loop.train(config, dataset, pipeline, task, optimizer, state, hooks)
        if test is not None:
            report.test_accuracy = evaluate(test)
    if config.out is not None:
        with timings.measure("write"):
            product.write(
                Path(config.out), config, whole, extractor, trainable, input_shape, num_classes
            )
    report.epochs, report.step_losses = state.epochs, state.step_losses
    report.samples = state.epochs[-1].samples
    report.timings = timings.snapshot()
    report.counts = store.counters.snapshot() - counted
    report.seconds = time.perf_counter() - started
    return report


def _num_classes(config: TrainConfig, dataset: Dataset) -> int:
    if config.num_classes is not None and config.num_classes < len(dataset.classes):
        raise ValueError(
            f"num_classes={config.num_classes}: {dataset.url} has {len(dataset.classes)} classes"
        )
    return config.num_classes or len(dataset.classes)


def _test_set(config: TrainConfig, store: SwiftClient, train: Dataset) -> Dataset | None:
    if config.test is None:
        return None
    return align(pin(store, SwiftUrl.parse(config.test), config.num_classes), train)


def _with_transform(config: TrainConfig, default: str | None) -> TrainConfig:
    if config.transform == NO_TRANSFORM:
        return replace(config, transform=None)
    config = config.with_transform(default)
    if config.transform is None:
        raise ValueError(f"transform: {config.model} has no default; give one")
    return config


def _plan(
    config: TrainConfig,
    store: SwiftClient,
    extractor: Extractor,
    input_shape: tuple[int, ...],
    dataset: Dataset,
) -> Plan:
    cuts = extractor.cuts_for(input_shape)
    info = store.info()
    # An operator may hide /info: then only trying tells.
    pushdown = not info or "swift_hapi" in info
    raw_bytes = None if dataset.samples is None else dataset.bytes / dataset.samples
    plan = choose(
        config.split, cuts, lambda name: cuts[extractor.resolve(name).index], raw_bytes, pushdown
    )
    if config.require_pushdown and plan.cut is None:
        raise PushdownUnavailable(f"a push-down is required, but {plan.reason}")
    return plan


class _Saver:
    """Writes checkpoints at the end of epochs, and within long ones."""

    def __init__(self, config, dataset, extractor, trainable, optimizer, timings):
        self._timings = timings
        self._path = None if config.out is None else Path(config.out, checkpoint.NAME)
        self._resume = config.resume
        self._every = config.checkpoint_seconds
        self._identity = checkpoint.Identity(config.identity(), dataset.digest, extractor.digest)
        self._model = trainable
        self._optimizer = optimizer
        self._last = time.monotonic()

    def load(self, progress: Progress) -> RunState:
        if not self._resume or not self._path.exists():
            return RunState()
        state = checkpoint.load(self._path, self._identity, self._model, self._optimizer)
        progress.note(f"resumed after step {state.step}, in epoch {state.epoch + 1}")
        return state

    def __call__(self, state: RunState, end_of_epoch: bool) -> None:
        if self._path is None:
            return
        if end_of_epoch or time.monotonic() - self._last >= self._every:
            with self._timings.measure("write"):
                checkpoint.save(self._path, self._identity, state, self._model, self._optimizer)
            self._last = time.monotonic()
