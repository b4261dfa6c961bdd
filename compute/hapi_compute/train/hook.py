"""A user's own head and loss: ``--task path/to/file.py:factory``.

The file is executed, on the compute tier only. ``factory()`` returns a :class:`TrainingTask`,
which overrides as much as it wants to::

    from torch import nn
    from hapi_compute import TrainingTask

    class TwoLayers(TrainingTask):
        def head(self, rest, features, classes):
            return nn.Sequential(nn.Flatten(), nn.Linear(features.numel(), 64), nn.ReLU(),
                                 nn.Linear(64, classes))

    def factory():
        return TwoLayers()
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from hapi_compute.models import user
from hapi_compute.train.errors import TaskFailed


class TrainingTask:
    """What is trained on the features at the freeze point, and how its loss is computed.

    :param label_smoothing: as the run's options say
    """

    label_smoothing: float = 0.0

    def head(self, rest: nn.Module, features: torch.Tensor, classes: int) -> nn.Module:
        """The module to train, from features [n, ...] to outputs.

        :param rest: what follows the freeze point in the model, with a new layer for the classes
        :param features: one sample's, without a batch dimension, all zeros: for its shape
        """
        return rest

    def losses(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """A loss for each sample, [n], with gradients; labels are int64 [n].

        Weights of classes, and the mean over the batch of all ranks, come afterwards.
        """
        return functional.cross_entropy(
            outputs, labels, reduction="none", label_smoothing=self.label_smoothing
        )

    def scores(self, outputs: torch.Tensor) -> torch.Tensor:
        """[n, classes], larger for what is likelier: for accuracies."""
        return outputs


def load(reference: str | None, label_smoothing: float) -> TrainingTask:
    """The task of a run.

    :param reference: ``path/to/file.py:factory``, None for the usual one
    :raises OSError: the file cannot be read
    :raises ValueError: it fails, or makes something else
    """
    task = TrainingTask()
    if reference is not None:
        task = user.call(reference)
        if not isinstance(task, TrainingTask):
            raise ValueError(f"task={reference!r} made {type(task).__name__}, no TrainingTask")
    task.label_smoothing = label_smoothing
    return task if reference is None else Guarded(task, reference)


class Guarded(TrainingTask):
    """A user's task, whose faults are told in one line.

    :param reference: ``path/to/file.py:factory`` that it came from
    """

    def __init__(self, task: TrainingTask, reference: str):
        self._task = task
        self._file = str(Path(reference.rpartition(":")[0]).resolve())

    def head(self, rest: nn.Module, features: torch.Tensor, classes: int) -> nn.Module:
        return self.call("head()", self._task.head, rest, features, classes)

    def try_head(self, head: nn.Module, features: torch.Tensor) -> None:
        """Run the head once, before any data is read; it is left as it is, but for layers that
        take their size from what they see first.

        :raises TaskFailed: it does not run on these features
        """
        modes = [(module, module.training) for module in head.modules()]
        head.eval()
        with torch.no_grad():
            self.scores(self.call("the head", head, torch.stack([features, features])))
        for module, training in modes:
            module.training = training

    def losses(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        found = self.call("losses()", self._task.losses, outputs, labels)
        if not torch.is_tensor(found) or found.shape != labels.shape:
            # A mean over the batch would be taken for a sum over one sample.
            raise TaskFailed(
                f"{self._file}: losses() returned {_shape(found)}, want one loss for each sample, "
                f"[{len(labels)}] (reduction='none')"
            )
        return found

    def scores(self, outputs: torch.Tensor) -> torch.Tensor:
        found = self.call("scores()", self._task.scores, outputs)
        if not torch.is_tensor(found) or found.dim() != 2 or len(found) != len(outputs):
            raise TaskFailed(
                f"{self._file}: scores() returned {_shape(found)}, want [{len(outputs)}, classes]"
            )
        return found

    def call(self, what: str, function: Callable, *arguments):
        """``function(*arguments)``, which is the user's.

        :raises TaskFailed: it raised
        """
        try:
            return function(*arguments)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == self._file]
            where = f"{self._file}:{lines[-1]}" if lines else self._file
            said = " ".join(str(error).split())
            raise TaskFailed(f"{where}: {what} failed: {type(error).__name__}: {said}") from error


def _shape(found: object) -> str:
    return str(list(found.shape)) if torch.is_tensor(found) else type(found).__name__
