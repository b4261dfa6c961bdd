"""Max-min fair division: nobody's share can grow without shrinking a smaller one.

Plain functions of their arguments. The order of equal parties does not matter, except that
:func:`deal` gives the odd samples to the first ones.
"""

from __future__ import annotations

from collections.abc import Sequence


def fill(capacity: float, lows: Sequence[float], highs: Sequence[float]) -> list[float]:
    """Shares ``clamp(level, low, high)`` at the one level where they sum up to ``capacity``.

    All ``lows`` when even these exceed the capacity, all ``highs`` when these fit. O(n log n).
    """
    total = sum(lows)
    if total >= capacity:
        return list(lows)
    if sum(highs) <= capacity:
        return list(highs)
    edges = sorted(
        [(low, 1) for low, high in zip(lows, highs, strict=True) if high > low]
        + [(high, -1) for low, high in zip(lows, highs, strict=True) if high > low]
    )
    level, rising = edges[0][0], 0
    for edge, step in edges:
        gain = rising * (edge - level)
        if total + gain >= capacity:
            level += (capacity - total) / rising
            break
        total += gain
        level = edge
        rising += step
    return [min(max(level, low), high) for low, high in zip(lows, highs, strict=True)]


def split(capacity: float, demands: Sequence[float]) -> list[float]:
    """Max-min fair shares of ``capacity`` without lower bounds."""
    if sum(demands) <= capacity:
        return list(demands)
    even = capacity / len(demands)
    if min(demands) >= even:
        return [even] * len(demands)
    return fill(capacity, [0.0] * len(demands), demands)


def deal(total: int, demands: Sequence[int]) -> tuple[list[int], list[int]]:
    """Whole shares of ``total``, each within one of the fair level or at its demand.

    :returns: shares, and the places of those who got one of the odd samples left over; the
        first parties get them, so who rotates the parties deals fairly over time (deficit round
        robin with a quantum of one sample)
    """
    if total >= sum(demands):
        return list(demands), []
    level = 0
    left, parties = total, len(demands)
    if total >= parties:
        for demand in sorted(demands):
            if demand * parties > left:
                level = left // parties
                break
            left -= demand
            parties -= 1
    shares = [min(demand, level) for demand in demands]
    spare = total - sum(shares)
    odd = []
    for place, demand in enumerate(demands):
        if not spare:
            break
        if demand > level:
            shares[place] += 1
            spare -= 1
            odd.append(place)
    return shares, odd
