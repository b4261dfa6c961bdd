"""The extractors that the engine knows: their graphs, shapes and memory, least recently used out.

Knowing one takes a few megabytes at most. Its weights are another matter: the controller decides
whether they are in memory. Reading a file to know it needs them once; they stay when there is
room.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from swift_hapi.engine.loaded import LoadedModel
from swift_hapi.engine.model_files import ModelFile
from swift_hapi.engine.weights import Weights
from swift_hapi.engine.workers import Workers
from swift_hapi.graph.memory import UNMEASURED
from swift_hapi.protocol.errors import EngineBusy, TooLarge

#: models, and nodes in the graphs of all of them
_KNOWN, _NODES = 256, 200_000
_SOON = 1


class Booking(Protocol):
    """Who keeps the books of memory: the driver."""

    def hold_weights(self, digest: str, nbytes: int) -> bool: ...

    def settle_weights(self, digest: str, nbytes: int) -> None: ...


class ModelMemory:
    """
    :param budget: bytes that a model's weights may take at most
    :param learnt: told each model that has just become known
    """

    def __init__(
        self,
        budget: int,
        workers: Workers,
        weights: Weights,
        booking: Booking,
        learnt: Callable[[LoadedModel], None] = lambda model: None,
    ):
        self._budget = budget
        self._workers = workers
        self._weights = weights
        self._booking = booking
        self._learnt = learnt
        self._known: OrderedDict[str, LoadedModel] = OrderedDict()
        self._learning: dict[str, asyncio.Task[LoadedModel]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def digests(self) -> list[str]:
        """Least recently used first."""
        return [f"sha256:{hex_}" for hex_ in self._known]

    @property
    def measured(self) -> int:
        """How many have had their memory measured."""
        return sum(model.memory is not UNMEASURED for model in self._known.values())

    def check_size(self, size: int) -> None:
        """:raises TooLarge: a file of ``size`` bytes can never be loaded"""
        if size > self._budget:
            raise TooLarge(
                f"a model of {size} bytes is larger than the {self._budget} the node has for one"
            )

    async def get(self, file: ModelFile, timeout: float) -> LoadedModel:
        """The model of ``file``.

        :raises EngineBusy: it is not known within ``timeout`` seconds; reading it goes on
        :raises ModelInvalid: the file is no extractor
        :raises ModelMismatch: the file no longer has the digest it is kept under
        :raises OSError: the file is gone
        """
        known = self._known.get(file.hex)
        if known is not None:
            self._known.move_to_end(file.hex)
            return known
        self.check_size(file.size)
        task = self._learning.get(file.hex)
        if task is None:
            task = self._learning[file.hex] = asyncio.create_task(self._learn(file))
            task.add_done_callback(lambda task: self._learnt_or_not(file.hex, task))
        done, _ = await asyncio.wait({task}, timeout=max(0.0, timeout))
        if not done:
            raise EngineBusy("the model is still being loaded", retry_after=_SOON)
        return task.result()

    async def _learn(self, file: ModelFile) -> LoadedModel:
        digest = f"sha256:{file.hex}"
        if digest in self._weights:
            return LoadedModel(await self._weights.extractor(file), self._workers)
        nbytes = 0
        held = self._booking.hold_weights(digest, file.size)
        try:
            if held:
                extractor = await self._weights.extractor(file)
            else:
                extractor = await self._weights.read(file)
            nbytes = extractor.weight_bytes
        finally:
            if held:
                self._booking.settle_weights(digest, nbytes)
        return LoadedModel(extractor, self._workers)

    def _learnt_or_not(self, hex_: str, task: asyncio.Task[LoadedModel]) -> None:
        del self._learning[hex_]
        if task.cancelled() or task.exception() is not None:
            return
        model = self._known[hex_] = task.result()
        while len(self._known) > 1 and (
            len(self._known) > _KNOWN or sum(m.nodes for m in self._known.values()) > _NODES
        ):
            self._known.popitem(last=False)
        self._learnt(model)

    def forget(self, hex_: str) -> None:
        """The file has turned out to be gone or damaged."""
        self._known.pop(hex_, None)
