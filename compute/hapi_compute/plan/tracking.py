"""A quantity that is measured again and again, with noise, and that may change for good.

Measurements are averaged, so that noise does not move a decision; one far off is held back, and
when the next one agrees with it the average starts anew from the two.
"""

from __future__ import annotations

import math

#: measurements that an average remembers
_MEMORY = 8
#: far off is by this factor, or by so many times the noise
CHANGE, NOISES = 1.3, 4.0


def far(ratio: float, noise: float) -> bool:
    """Whether two values of that ratio are no longer parted by noise."""
    return abs(math.log(ratio)) > max(math.log(CHANGE), NOISES * noise)


class Tracked:
    """:param value: what is believed before anything was measured; positive
    :param trusted: a first measurement that is far from it must be confirmed
    """

    def __init__(self, value: float, trusted: bool = False):
        self.value = value
        self.count = 0
        self._trusted = trusted
        self._odd: float | None = None

    def add(self, measured: float, noise: float) -> bool:
        """Take one in; whether the quantity has changed for good.

        :param noise: part by which measurements usually differ
        """
        if self.count == 0 and not (self._trusted and far(measured / self.value, noise)):
            self.value, self.count = measured, 1
            return False
        if far(measured / self.value, noise):
            odd, self._odd = self._odd, measured
            if odd is None or (odd > self.value) != (measured > self.value):
                return False
            self.value, self.count, self._odd = math.sqrt(odd * measured), 2, None
            return True
        self._odd = None
        self.count = min(self.count + 1, _MEMORY)
        step = math.log(measured / self.value) / self.count
        self.value *= math.exp(step)
        return False

    @property
    def doubtful(self) -> bool:
        """The last measurement was far off; the next one will tell."""
        return self._odd is not None
