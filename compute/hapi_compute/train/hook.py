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

import torch
from torch import nn
from torch.nn import functional

from hapi_compute.models import user


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
    return task
