"""A micro-batch on its way: from its samples' bytes, through the network, to its requests.

Event loop only. The micro-batches of a lane go through the network in the order in which they
lined up, while the later ones may be decoded already.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from swift_hapi.engine.buffers import Scratch
from swift_hapi.engine.compute import ALONE, AllocationFailed, Cost, Manners, Slot, run_batch
from swift_hapi.engine.control import LaneKey
from swift_hapi.engine.device import Device
from swift_hapi.engine.lane import Lane
from swift_hapi.engine.turns import ON_BEHALF_OF
from swift_hapi.engine.weights import Weights
from swift_hapi.engine.workers import Workers, call
from swift_hapi.protocol.errors import ModelMismatch, ModelNotFound

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Place:
    """A micro-batch's place in its lane's line.

    :param before: done when the one before is through; None when there is none
    :param through: to be done when this one is
    """

    lane: LaneKey
    before: asyncio.Future[None] | None
    through: asyncio.Future[None]


@dataclass(frozen=True)
class End:
    """How a micro-batch ended.

    :param cost: of its work; zeros when it failed
    :param shortage: what the device said when there was no memory for it; None if there was
    """

    cost: Cost
    shortage: str | None


class Flights:
    """Runs micro-batches on this machine's threads and device."""

    def __init__(self, workers: Workers, device: Device, weights: Weights):
        self._workers = workers
        self._device = device
        self._weights = weights
        self._scratch = Scratch()
        self._last: dict[LaneKey, asyncio.Future[None]] = {}

    def line_up(self, lane: LaneKey) -> Place:
        """The next place of a lane; :meth:`fly` must follow."""
        before = self._last.get(lane)
        through = asyncio.get_running_loop().create_future()
        self._last[lane] = through
        return Place(lane, before, through)

    async def fly(
        self, slots: list[Slot], lane: Lane, place: Place, manners: Manners = ALONE
    ) -> End:
        """Run one micro-batch; call it in a task of its own. Its requests hear of any error but
        a shortage of memory, which is for the caller to answer."""
        cost, shortage = Cost(0.0, 0.0), None
        ON_BEHALF_OF.set(slots[0].job.account)  # who waits for weights, if they are to be loaded
        try:
            head = asyncio.ensure_future(self._head(lane))
            try:
                cost = await run_batch(
                    self._workers,
                    self._device,
                    self._scratch,
                    slots,
                    head,
                    place.before,
                    lane.padded,
                    lane.memory,
                    manners,
                )
            finally:
                head.cancel()
                await asyncio.gather(head, return_exceptions=True)
        except AllocationFailed as error:
            shortage = str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, its requests must hear of it
            for job in {id(slot.job): slot.job for slot in slots}.values():
                job.fail(error)
        finally:
            place.through.set_result(None)
            if self._last.get(place.lane) is place.through:
                del self._last[place.lane]
        if shortage is not None:
            # Only now that the error is gone, with all that it was raised among.
            await call(self._workers.infer, self._device.relieve)
        return End(cost, shortage)

    async def _head(self, lane: Lane):
        """:raises ModelNotFound: the file is gone or damaged: the filter may send it anew"""
        if lane.cut is None:
            return None
        try:
            return await self._weights.head(lane.file, lane.cut)
        except (OSError, ModelMismatch) as error:
            LOG.error("model file %s cannot be used: %s", lane.file.path, error)
            raise ModelNotFound(
                f"the engine's file of sha256:{lane.file.hex} is gone or damaged"
            ) from error
