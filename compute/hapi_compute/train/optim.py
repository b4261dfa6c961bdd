"""Optimiser and learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from hapi_compute.data.errors import DatasetError
from hapi_compute.train.config import TrainConfig

#: ``schedule=step``: the rate falls to this part of itself after each third of the run
_STEP_FACTOR = 0.1


def build_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """AdamW or SGD over all parameters that want gradients."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if config.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        parameters, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
    )


def rate_factor(
    config: TrainConfig, samples: int | None
) -> Callable[[int], float]:
    """Step (0, 1, ...) to the factor on the learning rate; a pure function.

    With ``warmup`` the factor first rises in a line, and the schedule spans what comes after.

    :param samples: in one epoch, None when not known beforehand
    :raises DatasetError: the schedule needs the number of steps, and it is not known
    """
    scheduled = _scheduled(config, samples)
    warmup = config.warmup

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return scheduled(step - warmup)

    return factor


def _scheduled(config: TrainConfig, samples: int | None) -> Callable[[int], float]:
    if config.schedule == "constant":
        return lambda step: 1.0
    if samples is None:
        raise DatasetError(
            f"schedule={config.schedule} needs the number of samples, which a dataset without "
            "hapi-dataset.json does not tell; use schedule=constant, or pack it with 'hapi put'"
        )
    rounded = math.floor if config.drop_last else math.ceil
    steps = config.epochs * rounded(samples / config.batch_size) - config.warmup
    if steps < 1:
        raise ValueError(
            f"warmup={config.warmup}: the run has no more than {steps + config.warmup} steps"
        )
    if config.schedule == "cosine":
        return lambda step: 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps))
    return lambda step: _STEP_FACTOR ** (3 * min(step, steps - 1) // steps)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
