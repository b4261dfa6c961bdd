"""Extractors whose weights are in memory. Who comes and goes is the controller's decision; here
it is carried out."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable

import torch

from swift_hapi.engine.device import Device
from swift_hapi.engine.model_files import ModelFile, digests_of
from swift_hapi.engine.workers import Workers, call
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor, load_extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.protocol.errors import ModelInvalid, ModelMismatch

LOG = logging.getLogger(__name__)
#: kept ready for each model; there may be thousands of cuts
_HEADS = 16


class _Entry:
    def __init__(self, loading: asyncio.Task[Extractor]):
        self.loading = loading
        self.heads: OrderedDict[int, Head] = OrderedDict()


class Weights:
    """Loaded extractors by digest."""

    def __init__(self, workers: Workers, device: Device, load=load_extractor):
        self._workers = workers
        self._device = device
        self._load = load
        self._entries: dict[str, _Entry] = {}
        self.loads = 0
        self.evictions = 0

    def __contains__(self, digest: str) -> bool:
        return digest in self._entries

    def digests(self) -> list[str]:
        return list(self._entries)

    async def read(self, file: ModelFile, put=lambda extractor: extractor) -> Extractor:
        """The extractor of a file, not kept here.

        :param put: moves it elsewhere, in the same thread: another turn there could be far off
        :raises ModelInvalid: the file is no extractor
        :raises ModelMismatch: the file no longer has the digest it is kept under
        :raises OSError: the file is gone
        """
        try:
            extractor = await call(self._workers.load, lambda: put(self._load(file.path)))
        except ModelInvalid:
            # It may have been an extractor when it was put there.
            found = (await call(self._workers.io, digests_of, file.path)).hex
            if found == file.hex:
                raise
            raise ModelMismatch(f"the file kept as {file.hex} has digest {found}") from None
        if extractor.digest != f"sha256:{file.hex}":
            raise ModelMismatch(f"the file kept as {file.hex} has digest {extractor.digest}")
        self.loads += 1
        LOG.info("loaded model %s, %d bytes", file.hex, file.size)
        return extractor

    async def extractor(self, file: ModelFile) -> Extractor:
        """The extractor of a file on the device, kept until :meth:`drop`; raises as :meth:`read`.

        Who asks while it is being loaded waits for the same load.
        """
        digest = f"sha256:{file.hex}"
        entry = self._entries.get(digest)
        if entry is None:
            entry = _Entry(asyncio.ensure_future(self.read(file, self._device.take)))
            entry.loading.add_done_callback(lambda task: self._loaded(digest, entry))
            self._entries[digest] = entry
        return await asyncio.shield(entry.loading)

    def _loaded(self, digest: str, entry: _Entry) -> None:
        failed = entry.loading.cancelled() or entry.loading.exception() is not None
        if failed and self._entries.get(digest) is entry:
            del self._entries[digest]

    async def head(self, file: ModelFile, cut: Cut) -> Callable[[torch.Tensor], torch.Tensor]:
        """The network up to ``cut``; raises as :meth:`read`."""
        extractor = await self.extractor(file)
        entry = self._entries.get(f"sha256:{file.hex}")
        made = entry.heads.get(cut.index) if entry is not None else None
        if made is None:
            made = await call(self._workers.load, Head, extractor, cut)
            if entry is not None:
                entry.heads[cut.index] = made
                while len(entry.heads) > _HEADS:
                    entry.heads.popitem(last=False)
        else:
            entry.heads.move_to_end(cut.index)
        return made

    def drop(self, digest: str) -> None:
        """Forget the weights; memory comes back as soon as no micro-batch uses them."""
        if self._entries.pop(digest, None) is not None:
            self.evictions += 1
            LOG.info("model %s leaves memory", digest)
            self._device.release()
