"""What the settings of a module may be: checks for values that come from a file.

Nothing but booleans, bounded numbers, words out of a choice, and short tuples of those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from swift_hapi.graph.kernels import MAX_REACH

MAX_INT = 2**31 - 1


def is_int(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INT


def is_float(value) -> bool:
    """A float, or an integer that stands for one."""
    return isinstance(value, float) or is_int(value)


def is_bool(value) -> bool:
    return isinstance(value, bool)


def tuple_of(check, length: range):
    """Tuples of a length in ``length``, every member of which passes ``check``."""

    def test(value) -> bool:
        return isinstance(value, tuple) and len(value) in length and all(map(check, value))

    return test


def any_of(*checks):
    return lambda value: any(check(value) for check in checks)


def optional(check):
    return lambda value: value is None or check(value)


def choice(*words: str):
    return lambda value: isinstance(value, str) and value in words


ints = any_of(is_int, tuple_of(is_int, range(1, 9)))


def is_reach(value) -> bool:
    """Of a window, a pad or a factor: see :mod:`~swift_hapi.graph.kernels`."""
    return is_int(value) and abs(value) <= MAX_REACH


reaches = any_of(is_reach, tuple_of(is_reach, range(1, 9)))
sizes = any_of(is_int, tuple_of(optional(is_int), range(1, 4)))
scales = any_of(is_float, tuple_of(is_float, range(1, 4)))


@dataclass(frozen=True)
class Field:
    """One configuration value: a check for values from a file, a getter for live modules."""

    check: Callable[[object], bool]
    get: Callable[[nn.Module], object] | None = None
