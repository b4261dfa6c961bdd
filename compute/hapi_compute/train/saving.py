"""Checkpoints of a run: when they are written, and how a run goes on from one.

The first rank writes and reads; the others get its bytes.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import nn

from hapi_compute.data.timings import Timings
from hapi_compute.train import checkpoint
from hapi_compute.train.config import TrainConfig
from hapi_compute.train.distributed import World
from hapi_compute.train.progress import Progress
from hapi_compute.train.state import RunState


class Saver:
    """Writes checkpoints at the end of epochs, within long ones, and of the best epoch.

    :param model: its weights are saved; not wrapped for several ranks
    :param scaler: of gradients, for float16
    """

    def __init__(
        self,
        config: TrainConfig,
        identity: checkpoint.Identity,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        world: World,
        timings: Timings,
        scaler: torch.amp.GradScaler | None = None,
    ):
        self._config = config
        self._identity = identity
        self._model = model
        self._optimizer = optimizer
        self._world = world
        self._timings = timings
        self._scaler = scaler
        self._out = None if config.out is None else Path(config.out)
        self._last = time.monotonic()
        #: weights of the best epoch; the first rank's, where no file has them
        self._best: dict[str, torch.Tensor] | None = None

    def load(self, progress: Progress) -> RunState:
        """Where the run is: at its beginning, or where its checkpoint says. A collective call.

        :raises ValueError: there is a run already, and nothing says what to do with it
        :raises CheckpointMismatch: the checkpoint is of another run
        """
        content = self._world.on_first(self._content)
        if content is None:
            if self._config.resume:
                progress.note(f"{self._out} holds no checkpoint yet: this is the run's beginning")
            return RunState()
        path = self._out / checkpoint.NAME
        state = checkpoint.load(
            content, path, self._identity, self._model, self._optimizer, self._scaler
        )
        if state.epoch < self._config.epochs:
            progress.note(f"resumed after step {state.step}, in epoch {state.epoch + 1}")
        return state

    def _content(self) -> bytes | None:
        if self._out is None:
            return None
        path = self._out / checkpoint.NAME
        if not path.exists():
            return None
        if self._config.resume:
            return path.read_bytes()
        if not self._config.overwrite:
            raise ValueError(
                f"out={str(self._out)!r} holds a run already: add --resume to go on with it, "
                "--overwrite to begin anew, or choose another directory"
            )
        return None

    def within_epoch(self, state: RunState) -> None:
        """After a step of the optimiser: nothing is written more often than asked for."""
        if time.monotonic() - self._last >= self._config.checkpoint_seconds:
            self._write(checkpoint.NAME, state)

    def end_of_epoch(self, state: RunState, better: bool) -> None:
        """:param better: the epoch is the best so far"""
        # The best first: a run that is killed between the two repeats the epoch.
        if better and self._out is None and self._config.keeps_best:
            self._best = {k: v.detach().clone() for k, v in self._model.state_dict().items()}
        elif better:
            self._write(checkpoint.BEST_NAME, state)
        self._write(checkpoint.NAME, state)

    def take_best(self) -> None:
        """Put the best epoch's weights into the model. A collective call."""
        if self._out is None:
            self._model.load_state_dict(self._best)
            return
        path = self._out / checkpoint.BEST_NAME
        checkpoint.weights(self._world.on_first(path.read_bytes), path, self._model)

    def _write(self, name: str, state: RunState) -> None:
        self._last = time.monotonic()
        if self._out is None or not self._world.first:
            return
        with self._timings.measure("write"):
            checkpoint.save(
                self._out / name, self._identity, state, self._model, self._optimizer,
                self._scaler,
            )  # fmt: skip
