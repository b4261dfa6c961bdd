"""A known extractor: its graph, and what has been derived from it. The weights need not be in
memory for any of this. All torch work goes to a thread."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

import numpy as np

from swift_hapi.engine.sizing import Footprint
from swift_hapi.engine.workers import Workers, call
from swift_hapi.graph import cuts
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.liveness import LiveProfile, live_profile
from swift_hapi.graph.memory import UNMEASURED, MemoryModel
from swift_hapi.protocol.errors import BadTransform, EngineBusy, ModelInvalid

T = TypeVar("T")
#: Operations per second that any machine reaches: one core, with thin layers.
_SLOWEST = 1e10
#: Input shapes remembered per model; clients choose them.
_SHAPES = 16
#: Things to be made that wait, by account: they are made even when nobody waits for them any more.
_PENDING, _SOON = 8, 2
#: Cuts with their shapes, and nodes in profiles, remembered per model: some megabytes.
_CUTS, _STEPS = 20_000, 100_000


def footprint_of(
    extractor: Extractor,
    cut: Cut,
    shape: tuple[int, ...],
    memory: MemoryModel = UNMEASURED,
) -> Footprint:
    """Bytes per sample of ``shape`` up to ``cut``, and once. Blocking.

    :raises ModelInvalid: the extractor does not run on that shape
    """
    return _footprint(extractor, cut, shape, live_profile(extractor, cut, shape), memory)


def _footprint(
    extractor: Extractor,
    cut: Cut,
    shape: tuple[int, ...],
    profile: LiveProfile,
    memory: MemoryModel,
) -> Footprint:
    decoded = extractor.dtype.itemsize * math.prod(shape)
    if not cut.index:
        return Footprint(decoded, cut.bytes, 0)
    head = memory.of(profile)
    return Footprint(decoded, cut.bytes, head.per_sample, head.once, head)


class LoadedModel:
    """Cuts and footprints by input shape: each made once, then remembered.

    :param extractor: its weights are not kept
    """

    def __init__(self, extractor: Extractor, workers: Workers):
        self.weight_bytes = extractor.weight_bytes
        self._extractor = extractor.skeleton()
        #: how much memory it takes, guessed until it has been measured
        self.memory: MemoryModel = UNMEASURED
        self._workers = workers
        self._cuts: OrderedDict = OrderedDict()
        self._profiles: OrderedDict = OrderedDict()
        self._making: dict[tuple[int, Hashable], asyncio.Task] = {}

    @property
    def extractor(self) -> Extractor:
        """Without weights."""
        return self._extractor

    @property
    def nodes(self) -> int:
        """Of its graph: what knowing it takes is a kilobyte or two for each."""
        return len(self._extractor.graph.nodes)

    @property
    def digest(self) -> str:
        return self._extractor.digest

    def most_seconds(self, shape: tuple[int, ...]) -> float:
        """Longest that one sample of ``shape`` should take on any machine."""
        more = max(1.0, math.prod(shape) / math.prod(self.input_shape)) ** 2
        return more * self._extractor.flops / _SLOWEST

    @property
    def row_independent(self) -> bool:
        """Whether each sample's features are known to depend on that sample alone: files that
        cannot be shown to keep samples apart are not loaded."""
        return True

    @property
    def input_dtype(self) -> np.dtype:
        return np.dtype(str(self._extractor.dtype).removeprefix("torch."))

    @property
    def ids_below(self) -> int | None:
        """Ids in a sample must be below this, if it takes ids and says so."""
        return self._extractor.ids_below

    @property
    def input_shape(self) -> tuple[int, ...]:
        """[C, H, W] of the samples the extractor was made for."""
        return self._extractor.input_shape

    async def _once(
        self, made: OrderedDict, key: Hashable, most: int, make: Callable[[], T]
    ) -> T:
        """``make()`` in the loading thread, unless it is known. Who asks again after giving up
        waiting finds it made, or being made.

        :raises EngineBusy: the account has much to be made already
        """
        if key not in made:
            task = self._making.get((id(made), key))
            if task is None:
                if self._workers.load.pending() >= _PENDING:
                    raise EngineBusy(
                        "other shapes of samples are being looked at for the account",
                        retry_after=_SOON,
                    )
                task = asyncio.create_task(self._make(made, key, most, make))
                self._making[id(made), key] = task
            return await asyncio.shield(task)
        made.move_to_end(key)
        return made[key]

    async def _make(self, made: OrderedDict, key: Hashable, most: int, make: Callable[[], T]) -> T:
        try:
            value = made[key] = await call(self._workers.load, make)
        finally:
            del self._making[id(made), key]
        while len(made) > most:
            made.popitem(last=False)
        return value

    async def cut(self, split: str, shape: tuple[int, ...]) -> Cut:
        """The cut of that name or index, with its shapes for samples of ``shape``.

        :raises BadCut: there is none
        :raises BadTransform: the extractor does not run on samples of that shape
        """
        found = cuts.resolve(self._extractor.cuts, split)
        if shape == self.input_shape:
            return found
        try:
            most = max(1, min(_SHAPES, _CUTS // len(self._extractor.cuts)))
            every = await self._once(
                self._cuts, shape, most, lambda: self._extractor.cuts_for(shape)
            )
        except ModelInvalid as error:
            raise BadTransform(
                f"X-Hapi-Transform: samples of {'x'.join(map(str, shape))} do not suit the "
                f"model, which was made for {'x'.join(map(str, self.input_shape))}: "
                f"{error.detail}"
            ) from None
        return every[found.index]

    async def footprint(self, cut: Cut, shape: tuple[int, ...]) -> Footprint:
        """Bytes per sample of ``shape`` up to ``cut``, and once for all."""
        most = _STEPS // self.nodes
        profile = await self._once(
            self._profiles,
            (cut.index, shape),
            most,
            lambda: live_profile(self._extractor, cut, shape),
        )
        return _footprint(self._extractor, cut, shape, profile, self.memory)
