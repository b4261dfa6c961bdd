"""Values that a file may give to a module's settings, and those that it may not."""

from __future__ import annotations

import pytest

from swift_hapi.graph import settings


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (settings.is_int, (0, -7, settings.MAX_INT), (True, 1.0, "1", settings.MAX_INT + 1, None)),
        (settings.is_float, (0.5, 3), (False, "0.5", 10**30, None)),
        (settings.is_bool, (True, False), (0, 1, "true", None)),
        (settings.ints, (3, (3,), (1,) * 8), ((), (1,) * 9, [3], (3, None), (3, True), 3.0)),
        (settings.reaches, (65_536, (3, -65_536)), (65_537, (1, 65_537), (), True, 3.0)),
        (settings.sizes, (3, (3, None)), (None, (), (1, 1, 1, 1), (0.5,))),
        (settings.scales, (2, 0.5, (2, 0.5, 1)), ((), (1, 1, 1, 1), "2", (True,))),
        (settings.optional(settings.is_int), (None, 1), (True, 0.5)),
        (settings.choice("zeros", "circular"), ("zeros", "circular"), ("zero", "", 0, None)),
    ],
)
def test_values(check, good, bad):
    assert all(check(value) for value in good)
    assert not any(check(value) for value in bad)
