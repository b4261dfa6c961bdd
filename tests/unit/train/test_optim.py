from __future__ import annotations

import math

import pytest
from torch import nn

from hapi_compute.data.errors import DatasetError
from hapi_compute.train.config import TrainConfig
from hapi_compute.train.optim import build_optimizer, rate_factor, set_rate
from tests.unit.train.test_config import BASE


def config(**options) -> TrainConfig:
    return TrainConfig(**BASE | options)


def test_optimizers_take_their_options():
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    sgd = build_optimizer(config(optimizer="sgd", lr=0.5, momentum=0.7, weight_decay=0.1), model)
    group = sgd.param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.5, 0.7, 0.1)
    assert len(group["params"]) == 1
    adamw = build_optimizer(config(lr=0.25), model)
    assert type(adamw).__name__ == "AdamW" and adamw.param_groups[0]["lr"] == 0.25
    set_rate(adamw, 0.125)
    assert adamw.param_groups[0]["lr"] == 0.125


def test_constant():
    factor = rate_factor(config(), None)
    assert [factor(step) for step in (0, 10, 10**6)] == [1, 1, 1]


def test_cosine_falls_from_one_to_nothing():
    factor = rate_factor(config(schedule="cosine", epochs=2, batch_size=4), samples=18)
    assert factor(0) == 1
    assert math.isclose(factor(5), 0.5)
    values = [factor(step) for step in range(12)]
    assert values == sorted(values, reverse=True) and abs(values[-1]) < 1e-12


def test_step_falls_after_each_third():
    factor = rate_factor(config(schedule="step", epochs=3, batch_size=4), samples=8)
    values = [factor(step) for step in range(7)]
    assert values == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01, 0.01])


def test_schedules_that_need_the_number_of_samples_say_so():
    for schedule in ("cosine", "step"):
        with pytest.raises(DatasetError, match=schedule):
            rate_factor(config(schedule=schedule), None)


def test_warmup_rises_to_where_the_schedule_begins():
    factor = rate_factor(config(warmup=4), None)
    assert [factor(step) for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    factor = rate_factor(config(schedule="cosine", warmup=2, epochs=2, batch_size=4), samples=24)
    values = [factor(step) for step in range(12)]
    assert values[:3] == [0.5, 1, 1] and factor(7) == pytest.approx(0.5)
    assert values[2:] == sorted(values[2:], reverse=True) and factor(12) < 1e-12
    with pytest.raises(ValueError, match="warmup=12: the run has no more than 12 steps"):
        rate_factor(config(schedule="step", warmup=12, epochs=2, batch_size=4), samples=24)


def test_batches_left_out_are_no_steps():
    kept = rate_factor(config(schedule="cosine", epochs=1, batch_size=4), samples=10)
    left = rate_factor(config(schedule="cosine", epochs=1, batch_size=4, drop_last=True), 10)
    assert kept(2) > 0.2 and left(2) < 1e-12
