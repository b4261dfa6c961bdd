"""What one training step computes: frozen tail, trainable part, loss."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hapi_compute.data.timings import Timings
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.interpreter import Head, Tail


def step_seed(*path: object) -> int:
    """A seed for torch that ``path`` alone decides."""
    digest = hashlib.sha256("/".join(map(str, path)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


class TransferTask:
    """The part of a transfer model behind ``cut``.

    The frozen layers run in eval mode without gradients, on the training batch; only
    ``trainable`` is trained.

    :param cut: where the loader's batches were taken; the extractor's input for ``raw``
    """

    def __init__(self, extractor: Extractor, trainable: nn.Module, cut: Cut, timings: Timings):
        self.trainable = trainable
        self._tail = Tail(extractor, cut)
        self._timings = timings

    def loss(
        self, data: np.ndarray, labels: np.ndarray, seed: int
    ) -> tuple[torch.Tensor, int]:
        """Cross entropy of one training batch, ready for ``backward``, and the correct answers.

        :param data: float32 [n, ...] at the cut
        :param seed: of whatever the trainable part draws (dropout): the same wherever the frozen
            part runs
        """
        target = torch.from_numpy(labels)
        with self._timings.measure("frozen"):
            features = self._tail(torch.from_numpy(data))
        with self._timings.measure("trainable"):
            torch.manual_seed(seed)
            self.trainable.train()
            logits = self.trainable(features)
            loss = functional.cross_entropy(logits, target)
            correct = int((logits.detach().argmax(1) == target).sum())
        return loss, correct

    def predict(self, data: np.ndarray) -> torch.Tensor:
        """Logits [n, classes] in eval mode."""
        self.trainable.eval()
        with torch.no_grad():
            return self.trainable(self._tail(torch.from_numpy(data)))


class LocalHead:
    """The storage tier's part, for a shard that it could not serve."""

    def __init__(self, extractor: Extractor, cut: Cut):
        self._head = Head(extractor, cut)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """[n, *input] to [n, *cut], both float32, as one micro-batch."""
        return self._head(torch.from_numpy(batch)).contiguous().numpy()
