from __future__ import annotations

import numpy as np
import pytest

from hapi_compute.plan.choice import Chooser, Observed
from hapi_compute.plan.costs import Demand
from tests.unit.plan.simulation import SETTING, World, fly, misjudged, network

RATIOS = (0.1, 0.3, 1, 3, 10)


def world(seed: int, noise: float, odd: float = 0.05) -> World:
    rng = np.random.default_rng(seed)
    truth = network(rng)
    whole = truth["raw"].compute + truth["raw"].decode
    bandwidth = RATIOS[seed % len(RATIOS)] * truth["raw"].bytes / whole
    odds = {name: float(np.exp(rng.normal(0, odd))) for name in truth}
    return World(truth, bandwidth, noise, rng, odds)


def chooser(seen: World, by: float = 0.2) -> Chooser:
    return Chooser(misjudged(seen, by), SETTING, seen.bandwidth)


def test_without_misjudgement_the_first_choice_is_the_best():
    for seed in range(40):
        true = world(seed, 0.0, odd=0.0)
        assert true.regret(Chooser(true.truth, SETTING, true.bandwidth).current) == 0


@pytest.mark.parametrize(("noise", "share"), [(0.01, 0.95), (0.05, 0.93), (0.15, 0.8)])
def test_ends_near_the_best(noise, share):
    regrets = []
    for seed in range(100):
        true = world(seed, noise)
        choice = chooser(true)
        fly(choice, true, 12)
        regrets.append(true.regret(choice.current))
    assert np.mean(np.array(regrets) <= 0.05) >= share
    assert np.mean(regrets) < 0.03


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_does_not_flap(noise):
    moves = []
    for seed in range(60):
        true = world(seed, noise)
        choice = chooser(true)
        fly(choice, true, 12)
        path = [choice.current, *fly(choice, true, 100)]
        moves.append(sum(a != b for a, b in zip(path, path[1:], strict=False)))
    assert np.mean(moves) < 1.5 and max(moves) <= 8


def test_follows_the_bandwidth_down_and_up():
    followed = 0
    for seed in range(60):
        true = world(seed, 0.03)
        true.bandwidth *= 30
        choice = chooser(true)
        fly(choice, true, 12)
        for factor in (1 / 30, 30):
            true.bandwidth *= factor
            if true.truth[choice.current].bytes <= 20_000 and factor > 1:
                # Its own transfers do not tell: a shard that is read raw does.
                for _ in range(2):
                    choice.observe("raw", Observed(bandwidth=true.bandwidth))
            before = true.regret(choice.current)
            fly(choice, true, 12)
            assert true.regret(choice.current) <= max(0.1, before)
            followed += before > 0.1
    assert followed > 30


def test_a_pushdown_slower_than_raw_is_left():
    demands = {
        "raw": Demand(0.0, 0.01, 100_000, 0.0005, 0.002, 0.01),
        "cut": Demand(0.011, 0.01, 1000, 0.0005, 0.0, 0.001),
    }
    choice = Chooser(demands, SETTING, 1e8)
    assert choice.current == "cut"
    raw = choice.estimates()["raw"].time
    # By one part in a hundred: less than what any other move would need.
    choice.observe("cut", Observed(time=raw * 1.01, storage=raw * 1.01 / SETTING.batch))
    decision = choice.decide()
    assert decision.name == "raw" == choice.current and decision.runner_up == "cut"
    assert "instead of" in decision.reason


def test_one_odd_measurement_moves_nothing():
    true = world(1, 0.01)
    choice = chooser(true)
    fly(choice, true, 12)
    settled = choice.current
    choice.observe(settled, Observed(time=5 * true.time(settled)))
    assert choice.decide().name == settled
    fly(choice, true, 3)
    assert choice.current == settled


def test_stays_until_it_has_measured():
    true = world(2, 0.01)
    choice = chooser(true)
    assert choice.decide().name == choice.current
    assert "not measured" in choice.decide().reason


def test_needs_candidates():
    with pytest.raises(ValueError, match="no candidates"):
        Chooser({}, SETTING, 1e6)
