"""Which of several devices a request goes to: a pure function of what each one reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Offer:
    """A device from the point of view of one request.

    :param seconds: expected time until all work placed there is done
    :param load_seconds: time to load the weights, 0 when they are there or on their way
    :param open: it could take the request now, without a wait at its door
    """

    device: int
    seconds: float
    load_seconds: float
    open: bool


def choose(offers: Iterable[Offer]) -> int | None:
    """The device that should be done first; None when there is none to choose from."""
    best = min(
        offers, key=lambda o: (not o.open, o.seconds + o.load_seconds, o.device), default=None
    )
    return None if best is None else best.device
