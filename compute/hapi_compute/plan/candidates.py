"""The ways to divide a run between the tiers that are worth comparing.

The Pareto cuts (smaller than every earlier one), the decoded input, the object as it is, and a
few cuts that are not smaller but divide the work: where the network does not bind, two tiers that
compute half each are twice as fast as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from swift_hapi.graph.cuts import Cut
from swift_hapi.protocol.wire import LOSSY, sample_bytes

RAW = "raw"
#: shares of the frozen part's time near which a dividing cut is looked for
_SHARES = (0.25, 0.5, 0.75)
_NEAR = 0.12  #: how far from that share it may lie


@dataclass(frozen=True)
class Candidate:
    """One way to read the data.

    :param cut: None for raw
    :param dtype: of the features on the wire; ``uint8``: pixels, which lose nothing
    :param encoding: content coding of the features on the wire
    """

    cut: Cut | None
    dtype: str = "float32"
    encoding: str = "identity"

    @property
    def name(self) -> str:
        """A cut's name where nothing but the cut needs saying; else with dtype or coding."""
        if self.cut is None:
            return RAW
        extra = [self.dtype] if self.dtype in LOSSY else []
        extra += [self.encoding] if self.encoding != "identity" else []
        return "+".join([self.cut.name, *extra])

    @property
    def split(self) -> str:
        return RAW if self.cut is None else self.cut.name

    @property
    def bytes(self) -> int:
        """Of a sample's features before any content coding; there must be a cut."""
        return sample_bytes(self.cut.shape, self.dtype)


def candidate_at(cut: Cut, dtype: str, encoding: str, images: bool) -> Candidate:
    """:param dtype, encoding: that features travel as
    :param images: the samples are images, not arrays: decoded, they travel as pixels in any case
    """
    return Candidate(cut, "uint8" if images and cut.index == 0 else dtype, encoding)


def dividing(cuts: Sequence[Cut], seconds: Mapping[str, float]) -> list[Cut]:
    """For each share of the time the smallest cut near it, the nearest of equal ones.

    :param seconds: from the input to each cut
    """
    whole = seconds[cuts[-1].name]
    found = []
    for share in _SHARES:
        near = [
            cut
            for cut in cuts
            if cut.name in seconds and abs(seconds[cut.name] - share * whole) <= _NEAR * whole
        ]
        if near:
            found.append(
                min(near, key=lambda c: (c.bytes, abs(seconds[c.name] - share * whole)))
            )
    return found


def enumerate_candidates(
    cuts: Sequence[Cut],
    seconds: Mapping[str, float],
    candidate: Callable[[Cut], Candidate] = Candidate,
    *,
    raw: bool = True,
    pushdown: bool = True,
) -> list[Candidate]:
    """All candidates, ``raw`` first, then by the place of the cut.

    :param seconds: from the input to each cut, of one sample; may lack cuts
    :param candidate: of a cut, as features travel
    :param raw: whether the object itself may be read
    :param pushdown: whether the storage tier runs heads at all
    """
    found = [Candidate(None)] if raw else []
    if not pushdown:
        return found
    wanted = {cut.index: cut for cut in cuts if cut.pareto or cut.index == len(cuts) - 1}
    if seconds:
        wanted |= {cut.index: cut for cut in dividing(cuts, seconds)}
    return found + [candidate(wanted[index]) for index in sorted(wanted)]
