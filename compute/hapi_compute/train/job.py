"""One training run from options to report."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from hapi_compute.data.batches import EpochTotals
from hapi_compute.data.listing import Dataset
from hapi_compute.data.routing import Router
from hapi_compute.plan.candidates import Candidate
from hapi_compute.store.client import SwiftClient
from hapi_compute.train import checkpoint, loop, planning, product
from hapi_compute.train.config import TrainConfig, training_transform
from hapi_compute.train.evaluate import accuracy
from hapi_compute.train.optim import build_optimizer
from hapi_compute.train.pilot import Pilot
from hapi_compute.train.pipeline import Pipeline, decode_pool, jobs_of
from hapi_compute.train.progress import Progress
from hapi_compute.train.report import Report
from hapi_compute.train.setup import Parts, prepare
from hapi_compute.train.state import RunState
from hapi_compute.train.task import TransferTask
from hapi_compute.train.threads import shared_cpus, torch_threads
from hapi_compute.train.upload_model import ensure_uploaded
from swift_hapi.graph.allocator import keep_freed_memory

#: the run's first jobs, of which profiling takes as many as it needs
_FIRST_JOBS = 256


def run(config: TrainConfig, store: SwiftClient, progress: Progress | None = None) -> Report:
    """Train, evaluate, and write checkpoint and model where ``config.out`` says.

    :param store: client of the account that the dataset lies in
    :raises ValueError: an option does not suit model or data
    :raises HapiError: what store, data or training raised
    """
    progress = progress or Progress()
    keep_freed_memory()
    started, counted = time.perf_counter(), store.counters.snapshot()
    with running(config, store, progress) as job:
        report = job.train()
    if config.out is not None:
        parts = job.parts
        with job.timings.measure("write"):
            product.write(
                Path(config.out), job.config, parts.whole, parts.extractor, parts.trainable,
                parts.input_shape, parts.num_classes,
            )  # fmt: skip
    report.timings = job.timings.snapshot()
    report.counts = store.counters.snapshot() - counted
    report.seconds = time.perf_counter() - started
    return report


@contextmanager
def running(config: TrainConfig, store: SwiftClient, progress: Progress) -> Iterator[Job]:
    """A job that is ready to :meth:`~Job.plan` and :meth:`~Job.train`."""
    parts = prepare(config, store)
    config = parts.config
    with shared_cpus(config, raw=False), decode_pool(config) as pool:
        pipeline = Pipeline(
            config, store, parts.extractor, parts.input_shape, None, parts.num_classes,
            parts.timings, pool,
        )  # fmt: skip
        yield Job(parts, pipeline, progress)


class Job:
    """The parts of one run, put together.

    :param pipeline: without a model container yet
    """

    def __init__(self, parts: Parts, pipeline: Pipeline, progress: Progress):
        self.parts = parts
        self.config = parts.config
        self.timings = parts.timings
        self.progress = progress
        self.optimizer = build_optimizer(self.config, parts.trainable)
        self.saver = _Saver(parts, self.optimizer)
        self.state = self.saver.load(progress)
        self.windows = loop.windows_left(self.config, parts.dataset, self.state)
        self._asked = planning.asked(self.config, pipeline)
        if self._asked is None or self._asked.cut is not None:
            with self.timings.measure("start"):
                container, sent = ensure_uploaded(parts.extractor, pipeline.store)
            pipeline = pipeline.with_model_container(container)
            if sent:
                progress.note(f"uploaded the extractor file {parts.extractor.digest}")
        self.pipeline = pipeline
        self.router: Router | None = None
        self.candidates: dict[str, Candidate] = {}

    def plan(self) -> planning.Planned:
        """Decide how to begin; for ``auto`` by measuring with the run's first shards."""
        config, dataset = self.config, self.parts.dataset
        candidates = self.candidates
        self.router = Router(
            lambda route: self.pipeline.reader(dataset.url.container, candidates[route]),
            "", self.pipeline.store.occupancy,
        )  # fmt: skip
        if self._asked is not None:
            planned = planning.settle(self._asked)
        elif not self.windows:
            planned = planning.guess(config, self.pipeline, dataset)
        else:
            jobs = itertools.islice(jobs_of(self.windows, self.transform), _FIRST_JOBS)
            with self.timings.measure("profile"):
                planned = planning.measure(
                    config, self.pipeline, self.parts.trainable, dataset, self.windows,
                    list(jobs), self.router,
                )  # fmt: skip
        candidates |= planned.candidates
        self.router.switch(planned.plan.candidate.name)
        self.progress.note(f"split {planned.plan.split}: {planned.plan.reason}")
        return planned

    def transform(self, epoch: int):
        return training_transform(self.config.transform, self.config.seed, epoch)

    def train(self) -> Report:
        """All of it."""
        config, parts, state = self.config, self.parts, self.state
        planned = self.plan()
        plan = planned.plan
        report = Report(plan, config.model, config.seed, state.epochs)
        task = TransferTask(parts.extractor, parts.trainable, self.timings)

        def totals(brought: EpochTotals) -> None:
            report.fallbacks += brought.fallbacks
            for step, seconds in brought.storage.items():
                report.storage[step] = report.storage.get(step, 0.0) + seconds

        def evaluate(data: Dataset) -> float:
            found, brought = accuracy(self.pipeline, plan.candidate, data, task)
            totals(brought)
            return found

        pilot = Pilot(
            plan, self.router, self.timings, planned.candidates, config.batch_size,
            config.concurrency, planned.chooser, self._moved,
        )  # fmt: skip
        self._set_threads(plan.candidate)
        hooks = loop.Hooks(
            self.progress,
            validate=lambda: evaluate(parts.validation) if parts.validation.shards else None,
            checkpoint=self.saver,
            totals=totals,
            pilot=pilot,
        )
        begun = self.pipeline.store.occupancy.now()
        loop.train(
            config, parts.dataset, self.windows, self.router, self.pipeline, task,
            self.optimizer, state, hooks,
        )  # fmt: skip
        report.seconds_by_kind = self.pipeline.store.occupancy.now().since(begun).split
        if planned.chooser is not None:
            plan.take(planned.chooser)
        if parts.test is not None:
            report.test_accuracy = evaluate(parts.test)
        report.step_losses = state.step_losses
        report.samples = state.epochs[-1].samples
        return report

    def _moved(self, candidate: Candidate) -> None:
        self._set_threads(candidate)
        self.progress.note(f"split moves to {candidate.name}")

    def _set_threads(self, candidate: Candidate) -> None:
        torch.set_num_threads(torch_threads(self.config, raw=candidate.cut is None))


class _Saver:
    """Writes checkpoints at the end of epochs, and within long ones."""

    def __init__(self, parts: Parts, optimizer: torch.optim.Optimizer):
        config = parts.config
        self._timings = parts.timings
        self._path = None if config.out is None else Path(config.out, checkpoint.NAME)
        self._resume, self._overwrite = config.resume, config.overwrite
        self._every = config.checkpoint_seconds
        self._identity = checkpoint.Identity(
            config.identity(), parts.dataset.digest, parts.extractor.digest
        )
        self._model = parts.trainable
        self._optimizer = optimizer
        self._last = time.monotonic()

    def load(self, progress: Progress) -> RunState:
        if self._path is None or not self._path.exists():
            return RunState()
        if not self._resume:
            if not self._overwrite:
                raise ValueError(
                    f"out={str(self._path.parent)!r} holds a run already: add --resume to go on "
                    "with it, --overwrite to begin anew, or choose another directory"
                )
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
