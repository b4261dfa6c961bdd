"""What one training step computes: frozen tail, trainable part, loss."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hapi_compute.data.batches import Batch
from hapi_compute.data.timings import Timings
from hapi_compute.store.occupancy import COMPUTE
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.interpreter import Head, Tail


def step_seed(*path: object) -> int:
    """A seed for torch that ``path`` alone decides."""
    digest = hashlib.sha256("/".join(map(str, path)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


class TransferTask:
    """The part of a transfer model behind the cuts at which batches are taken.

    The frozen layers run in eval mode without gradients, on the training batch; only
    ``trainable`` is trained.
    """

    def __init__(self, extractor: Extractor, trainable: nn.Module, timings: Timings):
        self.trainable = trainable
        self._extractor = extractor
        self._tails: dict[str | None, Tail] = {}
        self._timings = timings

    def loss(self, batch: Batch, seed: int) -> tuple[torch.Tensor, int]:
        """Cross entropy of one training batch, ready for ``backward``, and the correct answers.

        :param seed: of whatever the trainable part draws (dropout): the same wherever the frozen
            part runs
        """
        target = torch.from_numpy(batch.labels)
        with self._timings.measure("frozen", COMPUTE):
            features = self._features(batch)
        with self._timings.measure("trainable", COMPUTE):
            torch.manual_seed(seed)
            self.trainable.train()
            logits = self.trainable(features)
            loss = functional.cross_entropy(logits, target)
            correct = int((logits.detach().argmax(1) == target).sum())
        return loss, correct

    def predict(self, batch: Batch) -> torch.Tensor:
        """Logits [n, classes] in eval mode."""
        self.trainable.eval()
        with torch.no_grad(), self._timings.occupancy.busy(COMPUTE):
            return self.trainable(self._features(batch))

    def _tail(self, cut: str | None) -> Tail:
        if cut not in self._tails:
            # By index: the input's name is the model's own affair.
            found = self._extractor.resolve("0" if cut is None else cut)
            self._tails[cut] = Tail(self._extractor, found)
        return self._tails[cut]

    def _features(self, batch: Batch) -> torch.Tensor:
        """At the freeze point, in the order of the batch."""
        found = [self._tail(part.cut)(torch.from_numpy(part.data)) for part in batch.parts]
        if len(found) == 1:
            return found[0]
        whole = found[0].new_empty(len(batch.labels), *found[0].shape[1:])
        for part, features in zip(batch.parts, found, strict=True):
            whole[torch.from_numpy(part.rows)] = features
        return whole


class LocalHead:
    """The storage tier's part, for a shard that it could not serve."""

    def __init__(self, extractor: Extractor, cut: Cut):
        self._head = Head(extractor, cut)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """[n, *input] to [n, *cut], both float32, as one micro-batch."""
        return self._head(torch.from_numpy(batch)).contiguous().numpy()
