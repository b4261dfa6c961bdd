"""Loaded extractors: each once, shared by all requests, within a budget, least recently used out.

An extractor in use is never evicted. A load that does not fit waits until others are no longer in
use; the request that asked for it waits no longer than it may.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator

from swift_hapi.engine.loaded import LoadedModel
from swift_hapi.engine.model_files import ModelFile
from swift_hapi.engine.workers import Workers, call
from swift_hapi.graph.extractor import load_extractor
from swift_hapi.protocol.errors import EngineBusy, ModelMismatch, TooLarge

LOG = logging.getLogger(__name__)


class _Entry:
    """A model that is loaded, or being loaded: ``users`` wait for it or use it."""

    def __init__(self, size: int):
        self.size = size
        self.users = 0
        self.task: asyncio.Task[LoadedModel] | None = None

    @property
    def loaded(self) -> bool:
        task = self.task
        return task.done() and not task.cancelled() and task.exception() is None

    @property
    def idle(self) -> bool:
        return self.users == 0 and self.loaded


class ModelMemory:
    """:param budget: bytes of extractor files that may be in memory at once"""

    def __init__(self, budget: int, workers: Workers, retry_after: int):
        self._budget = budget
        self._workers = workers
        self._retry_after = retry_after
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._reserved = 0
        self._change = asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        return self._reserved

    def digests(self) -> list[str]:
        """Least recently used first."""
        return [f"sha256:{hex_}" for hex_ in self._entries]

    @contextlib.asynccontextmanager
    async def use(self, file: ModelFile, timeout: float) -> AsyncIterator[LoadedModel]:
        """The model of ``file``, kept in memory for the length of the block.

        :raises EngineBusy: it is not loaded within ``timeout`` seconds; the loading goes on
        :raises ModelInvalid: the file is no extractor
        :raises ModelMismatch: the file no longer has the digest it is kept under
        :raises OSError: the file is gone
        """
        self.check_size(file.size)
        entry = self._entries.get(file.hex)
        if entry is None:
            entry = self._entries[file.hex] = _Entry(file.size)
            entry.task = asyncio.create_task(self._load(file))
            entry.task.add_done_callback(lambda task: self._loaded(file.hex, entry))
        entry.users += 1
        try:
            done, _ = await asyncio.wait({entry.task}, timeout=max(0.0, timeout))
            if not done:
                raise EngineBusy("the model is still being loaded", retry_after=self._retry_after)
            model = entry.task.result()
            if file.hex in self._entries:
                self._entries.move_to_end(file.hex)
            yield model
        finally:
            entry.users -= 1
            self._changed()

    def check_size(self, size: int) -> None:
        """:raises TooLarge: a file of ``size`` bytes can never be loaded"""
        if size > self._budget:
            raise TooLarge(
                f"a model of {size} bytes is larger than the {self._budget} the node has for all"
            )

    async def _load(self, file: ModelFile) -> LoadedModel:
        await self._make_room(file.size)
        try:
            extractor = await call(self._workers.load, load_extractor, file.path)
            if extractor.digest != f"sha256:{file.hex}":
                raise ModelMismatch(f"the file kept as {file.hex} has digest {extractor.digest}")
        except BaseException:
            self._reserved -= file.size
            self._changed()
            raise
        LOG.info("loaded model %s, %d bytes", file.hex, file.size)
        return LoadedModel(extractor, self._workers)

    def _loaded(self, hex_: str, entry: _Entry) -> None:
        if not entry.loaded and self._entries.get(hex_) is entry:
            del self._entries[hex_]

    async def _make_room(self, size: int) -> None:
        """Reserve ``size`` bytes, evicting idle models; wait for it as long as it takes."""
        while True:
            for hex_, entry in list(self._entries.items()):
                if self._reserved + size <= self._budget:
                    break
                if entry.idle:
                    LOG.info("model %s leaves memory", hex_)
                    del self._entries[hex_]
                    self._reserved -= entry.size
            if self._reserved + size <= self._budget:
                self._reserved += size
                return
            await self._change.wait()

    def _changed(self) -> None:
        """Wake all who wait for room. No wait of its own, which a cancellation could cut short."""
        self._change.set()
        self._change = asyncio.Event()
