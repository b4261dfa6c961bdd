"""One step: loss and gradients of a batch over all ranks, and, every few batches, new weights.

The loss of a batch is the weighted mean over the samples of all ranks, and the gradient of several
accumulated batches that of one large batch: sums are what is added up, and divided at the end.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from hapi_compute.data.batches import Batch
from hapi_compute.data.timings import Timings
from hapi_compute.store.occupancy import COMPUTE
from hapi_compute.train.config import TrainConfig
from hapi_compute.train.distributed import World
from hapi_compute.train.errors import Diverged
from hapi_compute.train.optim import set_rate
from hapi_compute.train.state import RunState
from hapi_compute.train.task import TransferTask, step_seed


@dataclass(frozen=True)
class Stepped:
    """A batch of all ranks: mean loss, samples, right answers (first, among five); whether the
    weights have been changed since. ``waited``: this rank's seconds until all had their loss."""

    loss: float
    samples: int
    correct: int
    correct5: int
    updated: bool
    waited: float = 0.0


class Stepper:
    """:param task: its trainable part is wrapped for the ranks
    :param scaler: of gradients, for float16
    """

    def __init__(
        self,
        config: TrainConfig,
        world: World,
        task: TransferTask,
        optimizer: torch.optim.Optimizer,
        timings: Timings,
        scaler: torch.amp.GradScaler | None = None,
    ):
        self._config = config
        self._world = world
        self._task = task
        self._optimizer = optimizer
        self._timings = timings
        self._scaler = scaler or torch.amp.GradScaler(world.device.type, enabled=False)
        self._batches = 0
        self._weight = 0.0
        # Whoever used the module before may have left gradients; they would count as the run's.
        optimizer.zero_grad(set_to_none=True)

    def step(self, batch: Batch, state: RunState, rate: float, closes: bool) -> Stepped:
        """A collective call.

        :param rate: learning rate
        :param closes: the epoch ends with this batch
        :raises Diverged: the loss is infinite or no number, on every rank
        """
        path = (self._config.seed, state.epoch, batch.step)
        # The ranks draw different numbers, for different samples.
        seed = step_seed(*path, self._world.rank) if self._world.rank else step_seed(*path)
        self._batches += 1
        update = closes or self._batches >= self._config.accumulate
        with ExitStack() as stack:
            if self._world.size > 1 and not update:
                stack.enter_context(self._task.trainable.no_sync())
            found = self._task.loss(batch, seed)
            own = (found.loss.item(), found.weight, found.samples, found.correct, found.correct5)
            begun = time.perf_counter()
            with self._timings.measure("sync"):
                value, weight, samples, correct, correct5 = self._world.add_up(own)
            waited = time.perf_counter() - begun
            if not math.isfinite(value):
                raise Diverged(
                    f"epoch {state.epoch + 1}, step {batch.step + 1}: the loss is {value}; a "
                    f"lower lr than {self._config.lr} may help"
                )
            with self._timings.measure("trainable", COMPUTE):
                # Gradients of several ranks are averaged; what is wanted is their sum.
                self._scaler.scale(found.loss * self._world.size).backward()
        self._weight += weight
        if update:
            self.update(rate)
        mean = value / weight if weight else 0.0
        return Stepped(mean, int(samples), int(correct), int(correct5), update, waited)

    def update(self, rate: float) -> None:
        """Change the weights by what has been accumulated, if anything has."""
        if not self._batches:
            return
        with self._timings.measure("trainable", COMPUTE):
            self._scaler.unscale_(self._optimizer)
            if self._weight:
                for group in self._optimizer.param_groups:
                    for parameter in group["params"]:
                        if parameter.grad is not None:
                            parameter.grad /= self._weight
            set_rate(self._optimizer, rate)
            self._scaler.step(self._optimizer)
            self._scaler.update()
            self._optimizer.zero_grad(set_to_none=True)
        self._batches, self._weight = 0, 0.0
