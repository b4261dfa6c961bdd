"""The division of a device's memory among its lanes: a pure function.

First, which lanes hold memory at once: in the order given, each that fits with its least
micro-batch. Then, how large each one's micro-batch is: memory is shared max-min fair over
accounts, an account's share over its lanes, until every lane has what it can use. A lane used by
several accounts divides its own limit among them beforehand.

The paper's controller solves a linear program whose optima are vertices (all memory to some, the
least to one); water-filling uses as much memory and leaves nobody with the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from swift_hapi.engine.control.types import LaneKey
from swift_hapi.engine.control.waterfill import fill, split


@dataclass(frozen=True)
class LaneView:
    """A lane as the plan sees it.

    :param floor: samples with which it may run at least
    :param top: samples it can use at most (work, limit and cap)
    :param demands: unfinished samples per account
    :param insists: lanes after it must not be taken when it does not fit beside those before it
    """

    key: LaneKey
    weight_bytes: int
    workspace_bytes: int
    sample_cost: int
    floor: int
    top: int
    demands: dict[str, int]
    insists: bool = False


@dataclass(frozen=True)
class Plan:
    """``targets``: samples per micro-batch of each lane that holds memory.

    :param total: bytes of all targets, with workspaces and weights
    :param waiting: lanes with work that do not fit, in order
    :param satisfied: no lane waits, and each has all it can use
    :param insisting: the lane for which memory is being cleared
    """

    targets: dict[LaneKey, int] = field(default_factory=dict)
    total: int = 0
    waiting: tuple[LaneKey, ...] = ()
    satisfied: bool = True
    insisting: LaneKey | None = None

    @property
    def digests(self) -> set[str]:
        return {key.digest for key in self.targets}


def solve(available: int, views: Sequence[LaneView], max_lanes: int | None = None) -> Plan:
    """Divide ``available`` bytes among ``views``, which are in order of precedence."""
    chosen: list[LaneView] = []
    waiting: list[LaneKey] = []
    insisting = None
    digests: set[str] = set()
    free = available
    for view in views:
        least = view.workspace_bytes + view.floor * view.sample_cost
        if view.key.digest not in digests:
            least += view.weight_bytes
        room = max_lanes is None or len(chosen) < max_lanes
        if insisting is None and room and least <= free:
            free -= least
            digests.add(view.key.digest)
            chosen.append(view)
            continue
        waiting.append(view.key)
        alone = view.weight_bytes + view.workspace_bytes + view.floor * view.sample_cost
        if view.insists and insisting is None and alone <= available:
            insisting = view.key
    wanted = sum((view.top - view.floor) * view.sample_cost for view in chosen)
    if wanted <= free:
        sizes = [view.top for view in chosen]
        free -= wanted
    else:
        sizes = _shares(free, chosen)
        free -= sum(
            (size - view.floor) * view.sample_cost
            for size, view in zip(sizes, chosen, strict=True)
        )
        free = _leftover(free, chosen, sizes)
    return Plan(
        targets={view.key: size for view, size in zip(chosen, sizes, strict=True)},
        total=available - free,
        waiting=tuple(waiting),
        satisfied=not waiting
        and all(size >= view.top for view, size in zip(chosen, sizes, strict=True)),
        insisting=insisting,
    )


def _shares(free: int, chosen: Sequence[LaneView]) -> list[int]:
    """Sizes, rounded down, when ``free`` bytes above all floors do not satisfy everybody."""
    pieces: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    floors = 0
    for place, view in enumerate(chosen):
        cost = view.sample_cost
        floors += view.floor * cost
        useful = split(view.top, list(view.demands.values()))
        # What the lane gets in any case counts as its accounts' own, in proportion to their use.
        part = view.floor / view.top
        for account, samples in zip(view.demands, useful, strict=True):
            pieces[account].append((place, samples * part * cost, samples * cost))
    accounts = list(pieces.values())
    grants = fill(
        free + floors,
        [sum(low for _, low, _ in own) for own in accounts],
        [sum(high for _, _, high in own) for own in accounts],
    )
    got = [0.0] * len(chosen)
    for own, grant in zip(accounts, grants, strict=True):
        if len(own) == 1:
            got[own[0][0]] += grant
            continue
        shares = fill(grant, [low for _, low, _ in own], [high for _, _, high in own])
        for (place, _, _), share in zip(own, shares, strict=True):
            got[place] += share
    # A hair of rounding error must not cost a sample, nor grant one that is not there: the bytes
    # are counted again in integers by _leftover.
    return [
        min(view.top, max(view.floor, int(share / view.sample_cost + 1e-6)))
        for view, share in zip(chosen, got, strict=True)
    ]


def _leftover(free: int, chosen: Sequence[LaneView], sizes: list[int]) -> int:
    """Hand out what rounding left, one sample each, least share per account first.

    Changes ``sizes``; returns the bytes that nobody can use.
    """
    order = sorted(
        range(len(chosen)),
        key=lambda i: sizes[i] * chosen[i].sample_cost / max(1, len(chosen[i].demands)),
    )
    while free < 0:  # rounding error granted a sample too many
        for place in reversed(order):
            if sizes[place] > chosen[place].floor and free < 0:
                sizes[place] -= 1
                free += chosen[place].sample_cost
    while True:
        given = False
        for place in order:
            view = chosen[place]
            if sizes[place] < view.top and view.sample_cost <= free:
                sizes[place] += 1
                free -= view.sample_cost
                given = True
        if not given:
            return free
