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
from hapi_compute.data.windows import Share
from hapi_compute.plan.candidates import Candidate
from hapi_compute.store.client import SwiftClient
from hapi_compute.train import checkpoint, html, loop, planning, product
from hapi_compute.train.config import TrainConfig, training_transform
from hapi_compute.train.convoy import Convoy
from hapi_compute.train.distributed import World, joined
from hapi_compute.train.evaluate import Scores, evaluate
from hapi_compute.train.journal import Files, Journal
from hapi_compute.train.optim import build_optimizer
from hapi_compute.train.pilot import Pilot
from hapi_compute.train.pipeline import Pipeline, decode_pool
from hapi_compute.train.precision import scaler
from hapi_compute.train.progress import Progress
from hapi_compute.train.report import Report
from hapi_compute.train.saving import Saver
from hapi_compute.train.setup import Parts, prepare
from hapi_compute.train.stepper import Stepper
from hapi_compute.train.task import TransferTask
from hapi_compute.train.threads import shared_cpus, torch_threads
from hapi_compute.train.upload_model import ensure_uploaded
from swift_hapi.graph.allocator import keep_freed_memory

#: the run's first jobs, of which profiling takes as many as it needs
_FIRST_JOBS = 256


def run(config: TrainConfig, store: SwiftClient, progress: Progress | None = None) -> Report:
    """Train, evaluate, and write checkpoint and model where ``config.out`` says.

    Under ``torchrun`` all ranks call this and get equal reports; the first one uploads and writes.

    :param store: client of the account that the dataset lies in
    :param progress: told by the first rank alone
    :raises ValueError: an option does not suit model or data
    :raises HapiError: what store, data or training raised
    """
    progress = progress or Progress()
    keep_freed_memory()
    started, counted = time.perf_counter(), store.counters.snapshot()
    with joined(config.device) as world:
        with running(config, store, progress if world.first else Progress(), world) as job:
            report = job.train()
        if config.out is not None and world.first:
            parts = job.parts
            with job.timings.measure("write"):
                product.write(
                    Path(config.out), job.config, parts.whole, parts.extractor, parts.trainable,
                    parts.input_shape, parts.num_classes,
                )  # fmt: skip
        report.timings = job.timings.snapshot()
        report.counts = store.counters.snapshot() - counted
        report.seconds = time.perf_counter() - started
        report.gather(world)
        if config.out is not None and world.first:
            html.write(Path(config.out), report.to_dict())
    return report


@contextmanager
def running(
    config: TrainConfig, store: SwiftClient, progress: Progress, world: World | None = None
) -> Iterator[Job]:
    """A job that is ready to :meth:`~Job.plan` and :meth:`~Job.train`."""
    world = world or World()
    parts = prepare(config, store, world)
    config = parts.config
    with shared_cpus(config, raw=False), decode_pool(config) as pool:
        pipeline = Pipeline(
            config, store, parts.extractor, parts.input_shape, None, parts.num_classes,
            parts.timings, pool, Share(world.rank, world.size),
        )  # fmt: skip
        yield Job(parts, pipeline, progress, world)


class Job:
    """The parts of one run, put together.

    :param pipeline: without a model container yet
    """

    def __init__(
        self, parts: Parts, pipeline: Pipeline, progress: Progress, world: World | None = None
    ):
        self.parts = parts
        self.config = parts.config
        self.timings = parts.timings
        self.progress = progress
        self.world = world or World()
        self.layout = pipeline.layout(parts.dataset)
        if self.layout.step_count == 0:
            raise ValueError(
                f"drop_last: {parts.dataset.samples} samples make no batch of "
                f"{self.config.batch_size}"
            )
        parts.trainable.to(self.world.device)
        self.optimizer = build_optimizer(self.config, parts.trainable)
        identity = checkpoint.Identity(
            self.config.identity(), parts.dataset.digest, parts.extractor.digest
        )
        self.scaler = scaler(self.config.precision, self.world.device)
        self.saver = Saver(
            self.config, identity, parts.trainable, self.optimizer, self.world, self.timings,
            self.scaler,
        )  # fmt: skip
        self.state = self.saver.load(progress)
        patience = self.config.patience
        self.state.stopped = patience is not None and self.state.without_gain() >= patience
        self.windows = loop.windows_left(self.config, parts.dataset, self.state)
        if not self.windows:
            done = len(self.state.epochs)
            epochs = "its epoch is" if done == 1 else f"all {done} epochs are"
            progress.note(f"{epochs} done: nothing is left to do")
        # The store may answer two ranks differently; they must agree on what comes next.
        self._asked = self.world.on_first(lambda: planning.asked(self.config, pipeline))
        if self._asked is None or self._asked.cut is not None:
            with self.timings.measure("start"):
                container, sent = self.world.on_first(
                    lambda: ensure_uploaded(parts.extractor, pipeline.store)
                )
            pipeline = pipeline.with_model_container(container)
            if sent:
                progress.note(f"uploaded the extractor file {parts.extractor.digest}")
        self.pipeline = pipeline
        self.router: Router | None = None
        self.candidates: dict[str, Candidate] = {}

    def plan(self) -> planning.Planned:
        """Decide how to begin; for ``auto`` by measuring with the run's first shards, which the
        first rank does for all. A collective call."""
        dataset = self.parts.dataset
        candidates = self.candidates
        self.router = Router(
            lambda route: self.pipeline.reader(dataset.url.container, candidates[route]),
            "", self.pipeline.store.occupancy,
        )  # fmt: skip
        if self._asked is not None:
            planned = planning.settle(self._asked)
        elif not self.windows:
            planned = planning.guess(self.pipeline, dataset)
        else:
            with self.timings.measure("profile"):
                planned = self.world.on_first(self._measure)
        candidates |= planned.candidates
        self.router.switch(planned.plan.candidate.name)
        self.progress.note(f"split {planned.plan.split}: {planned.plan.reason}")
        return planned

    def _measure(self) -> planning.Planned:
        jobs = itertools.islice(self.layout.jobs(self.windows, self.transform), _FIRST_JOBS)
        return planning.measure(
            self.config, self.pipeline, self.parts.trainable, self.parts.dataset, self.windows,
            list(jobs), self.router,
        )  # fmt: skip

    def transform(self, epoch: int):
        return training_transform(self.config.transform, self.config.seed, epoch)

    def train(self) -> Report:
        """All of it; what is left in ``parts.trainable`` is the product."""
        config, parts, state = self.config, self.parts, self.state
        planned = self.plan()
        plan = planned.plan
        report = Report(plan, config.model, config.seed, state.epochs)
        report.ranks, report.classes = self.world.size, list(parts.whole.classes)
        report.precision = config.precision
        task = TransferTask(
            parts.tail_extractor(self.world.device), self.world.wrap(parts.trainable),
            self.timings, parts.hook, parts.class_weights, self.world.device, config.precision,
        )  # fmt: skip

        def totals(brought: EpochTotals) -> None:
            report.fallbacks += brought.fallbacks
            for step, seconds in brought.storage.items():
                report.storage[step] = report.storage.get(step, 0.0) + seconds

        def scores(data: Dataset) -> Scores:
            found, brought = evaluate(self.pipeline, plan.candidate, data, task, self.world)
            totals(brought)
            return found

        pilot = self._pilot(planned)
        self._set_threads(plan.candidate)
        stepper = Stepper(
            config, self.world, task, self.optimizer, self.timings, self.scaler
        )
        begun = self.pipeline.store.occupancy.now()
        with self._journal() as journal:
            hooks = loop.Hooks(
                self.progress,
                journal,
                validate=lambda: scores(parts.validation) if parts.validation.shards else None,
                saver=self.saver,
                totals=totals,
                pilot=pilot,
            )
            loop.train(
                config, parts.dataset, self.windows, self.layout, self.router, self.pipeline,
                stepper, self.world, state, hooks,
            )  # fmt: skip
        report.seconds_by_kind = self.pipeline.store.occupancy.now().since(begun).split
        if planned.chooser is not None:
            plan.take(planned.chooser)
        if config.keeps_best and state.best is not None:
            self.saver.take_best()
            report.best_epoch = state.best
        if parts.test is not None:
            report.test = scores(parts.test)
        report.step_losses = state.step_losses
        report.samples = state.epochs[-1].samples
        return report

    def _pilot(self, planned: planning.Planned) -> Pilot | Convoy:
        world = self.world
        pilot = Pilot(
            planned.plan, self.router, self.timings, planned.candidates,
            max(1, self.pipeline.own_batch), self.config.concurrency,
            planned.chooser if world.first else None, self._moved,
        )  # fmt: skip
        if world.size == 1 or planned.chooser is None:
            return pilot
        return Convoy(pilot, world, planned.candidates)

    def _journal(self) -> Journal:
        if self.config.out is None or not self.world.first:
            return Journal()
        return Files(self.config, self.state)

    def _moved(self, candidate: Candidate) -> None:
        self._set_threads(candidate)
        self.progress.note(f"split moves to {candidate.name}")

    def _set_threads(self, candidate: Candidate) -> None:
        torch.set_num_threads(torch_threads(self.config, raw=candidate.cut is None))
