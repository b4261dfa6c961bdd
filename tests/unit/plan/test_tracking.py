from __future__ import annotations

import numpy as np
import pytest

from hapi_compute.plan.tracking import Tracked, far


def test_the_first_measurement_replaces_the_belief():
    tracked = Tracked(1.0)
    assert not tracked.add(7.0, 0.0)
    assert (tracked.value, tracked.count) == (7.0, 1)


def test_noise_is_averaged_away():
    rng = np.random.default_rng(0)
    tracked = Tracked(1.0)
    for value in np.exp(rng.normal(np.log(5), 0.05, 30)):
        assert not tracked.add(value, 0.05)
    assert tracked.value == pytest.approx(5, rel=0.05)


def test_one_outlier_is_held_back_two_are_a_change():
    tracked = Tracked(1.0)
    for _ in range(5):
        tracked.add(10.0, 0.02)
    assert not tracked.add(100.0, 0.02) and tracked.doubtful
    assert tracked.value == pytest.approx(10)
    assert tracked.add(100.0, 0.02) and not tracked.doubtful
    assert tracked.value == pytest.approx(100)


def test_outliers_to_both_sides_are_no_change():
    tracked = Tracked(1.0)
    tracked.add(10.0, 0.02)
    for value in (100.0, 1.0, 100.0, 1.0):
        assert not tracked.add(value, 0.02)
    assert tracked.value == pytest.approx(10)


def test_what_is_far_depends_on_the_noise():
    assert far(1.4, 0.02) and far(1 / 1.4, 0.02)
    assert not far(1.2, 0.02) and not far(1.4, 0.3)
