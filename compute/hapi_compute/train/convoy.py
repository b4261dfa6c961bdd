"""One pilot for all ranks.

Only the first rank's pilot has a chooser. After every iteration it tells all ranks, by one number,
which candidate to go on by: so no rank waits for another one that reads in a slower way or tries
one out, and the storage tier is tried by all ranks or by none. Every rank makes the same steps,
whether it has samples or not, and gives up in the same ones; the number travels with these.
"""

from __future__ import annotations

from collections.abc import Iterable

from hapi_compute.data.batches import Batch
from hapi_compute.train.distributed import World
from hapi_compute.train.pilot import Pilot


class Convoy:
    """Takes the place of a :class:`Pilot` where there are several ranks.

    :param pilot: without a chooser on all ranks but the first
    :param candidates: names, in the same order on every rank
    """

    def __init__(self, pilot: Pilot, world: World, candidates: Iterable[str]):
        self._pilot = pilot
        self._world = world
        self._names = list(candidates)

    def after(self, step: int, batch: Batch, seconds: float) -> None:
        """An iteration is done; a collective call."""
        self._pilot.after(step, batch, seconds)
        here = self._pilot.plan.candidate.name
        told = self._names[self._world.from_first(self._names.index(here))]
        if told != here:
            self._pilot.follow(step + 1, told, "as the first rank")

    def pause(self) -> None:
        """See :meth:`Pilot.pause`."""
        self._pilot.pause()
