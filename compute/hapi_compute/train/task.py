"""What one training step computes: frozen tail, trainable part, loss."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hapi_compute.data.batches import Batch
from hapi_compute.data.timings import Timings
from hapi_compute.store.occupancy import COMPUTE
from hapi_compute.train.hook import Guarded, TrainingTask
from hapi_compute.train.precision import FLOAT32, autocast
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.interpreter import Head, Tail

#: accuracy among the so many likeliest classes is told beside the plain one
TOP = 5


def step_seed(*path: object) -> int:
    """A seed for torch that ``path`` alone decides."""
    digest = hashlib.sha256("/".join(map(str, path)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


@dataclass(frozen=True)
class Outcome:
    """Of one rank's part of a batch: ``loss`` is the weighted sum over its samples, ready for
    ``backward``, ``weight`` the sum of their weights; counts of samples and of right answers."""

    loss: torch.Tensor
    weight: float
    samples: int
    correct: int
    correct5: int


class TransferTask:
    """The part of a transfer model behind the cuts at which batches are taken.

    The frozen layers run in eval mode without gradients, on the training batch; only
    ``trainable`` is trained.

    :param trainable: on its device, wrapped for several ranks if there are
    :param class_weights: None: all classes weigh the same
    :param precision: that ``trainable`` computes in; losses are float32 always
    """

    def __init__(
        self,
        extractor: Extractor,
        trainable: nn.Module,
        timings: Timings,
        hook: TrainingTask | None = None,
        class_weights: Sequence[float] | None = None,
        device: torch.device | None = None,
        precision: str = FLOAT32,
    ):
        self._precision = precision
        self.trainable = trainable
        self._extractor = extractor
        self._tails: dict[str | None, Tail] = {}
        self._timings = timings
        self._hook = hook or TrainingTask()
        self._device = device or torch.device("cpu")
        self._weights = None
        if class_weights is not None:
            self._weights = torch.tensor(class_weights, device=self._device)

    def loss(self, batch: Batch, seed: int) -> Outcome:
        """The loss of one training batch.

        :param seed: of whatever the trainable part draws (dropout): the same wherever the frozen
            part runs
        """
        target = torch.from_numpy(batch.labels).to(self._device)
        with self._timings.measure("frozen", COMPUTE):
            features = self._features(batch)
        with self._timings.measure("trainable", COMPUTE):
            torch.manual_seed(seed)
            self.trainable.train()
            outputs = self._outputs(self.trainable, features)
            if not len(target):
                # No sample for this rank, but the others wait for its gradients.
                return Outcome(outputs.sum() * 0.0, 0.0, 0, 0, 0)
            losses = self._hook.losses(outputs, target)
            weight = float(len(target))
            if self._weights is not None:
                each = self._weights[target]
                losses, weight = losses * each, float(each.sum())
            correct, correct5 = self._right(outputs, target)
            return Outcome(losses.sum(), weight, len(target), correct, correct5)

    def predict(self, batch: Batch) -> tuple[torch.Tensor, float]:
        """Scores [n, classes] in eval mode, on the CPU, and the sum of the losses."""
        model = getattr(self.trainable, "module", self.trainable)
        model.eval()
        with torch.no_grad(), self._timings.occupancy.busy(COMPUTE):
            outputs = self._outputs(model, self._features(batch))
            target = torch.from_numpy(batch.labels).to(self._device)
            losses = self._hook.losses(outputs, target)
            return self._hook.scores(outputs).float().cpu(), float(losses.sum())

    def _outputs(self, model: nn.Module, features: torch.Tensor) -> torch.Tensor:
        if isinstance(self._hook, Guarded) and not isinstance(model, DistributedDataParallel):
            # The wrapper for several ranks fails for reasons of its own.
            return self._hook.call("the head", self._forward, model, features)
        return self._forward(model, features)

    def _forward(self, model: nn.Module, features: torch.Tensor) -> torch.Tensor:
        if self._precision == FLOAT32:
            return model(features)
        with autocast(self._precision, self._device):
            outputs = model(features)
        return outputs.float()

    def _right(self, outputs: torch.Tensor, target: torch.Tensor) -> tuple[int, int]:
        scores = self._hook.scores(outputs.detach())
        return int((scores.argmax(1) == target).sum()), among(scores, target)

    def _tail(self, cut: str | None) -> Tail:
        if cut not in self._tails:
            # By index: the input's name is the model's own affair.
            found = self._extractor.resolve("0" if cut is None else cut)
            self._tails[cut] = Tail(self._extractor, found)
        return self._tails[cut]

    def _features(self, batch: Batch) -> torch.Tensor:
        """At the freeze point, in the order of the batch."""
        if not batch.parts:
            # Two: a layer with batch statistics takes no single value.
            return torch.zeros((2, *self._extractor.cuts[-1].shape), device=self._device)
        found = [
            self._tail(part.cut)(torch.from_numpy(part.data).to(self._device))
            for part in batch.parts
        ]
        if len(found) == 1:
            return found[0]
        whole = found[0].new_empty(len(batch.labels), *found[0].shape[1:])
        for part, features in zip(batch.parts, found, strict=True):
            whole[torch.from_numpy(part.rows).to(self._device)] = features
        return whole


def among(scores: torch.Tensor, target: torch.Tensor, top: int = TOP) -> int:
    """How many of ``target`` are among the ``top`` highest of their row."""
    best = scores.topk(min(top, scores.shape[1]), dim=1).indices
    return int((best == target[:, None]).sum())


class LocalHead:
    """The storage tier's part, for a shard that it could not serve."""

    def __init__(self, extractor: Extractor, cut: Cut):
        self._head = Head(extractor, cut)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """[n, *input] to [n, *cut], both float32, as one micro-batch."""
        return self._head(torch.from_numpy(batch)).contiguous().numpy()
