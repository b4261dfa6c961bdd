from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hapi_compute.data.batches import Batch, Part
from hapi_compute.data.timings import Timings
from hapi_compute.train.config import TrainConfig
from hapi_compute.train.distributed import World
from hapi_compute.train.errors import Diverged
from hapi_compute.train.optim import build_optimizer
from hapi_compute.train.state import RunState
from hapi_compute.train.stepper import Stepper
from hapi_compute.train.task import Outcome, TransferTask
from swift_hapi.graph.split import build_transfer
from tests.unit.train.test_config import BASE

X = np.random.default_rng(3).standard_normal((12, 4)).astype(np.float32)
Y = np.arange(12, dtype=np.int64) % 3
WEIGHTS = (1.0, 3.0, 0.5)


def batch(rows, step: int) -> Batch:
    part = Part(None, np.arange(len(rows)), X[rows])
    return Batch((part,), Y[rows], ("",) * len(rows), step, len(rows))


def trained(batches, weights=None, left=None, **options) -> tuple[nn.Module, list]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    extractor, rest = build_transfer(model, "0", 3, 0, (4,))
    config = TrainConfig(**BASE | {"optimizer": "sgd", "lr": 0.1} | options)
    for parameter in rest.parameters() if left else ():
        parameter.grad = torch.full_like(parameter, left)
    optimizer = build_optimizer(config, rest)
    task = TransferTask(extractor, rest, Timings(), class_weights=weights)
    stepper, state = Stepper(config, World(), task, optimizer, Timings()), RunState()
    found = [
        stepper.step(each, state, config.lr, number + 1 == len(batches))
        for number, each in enumerate(batches)
    ]
    return rest, found


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_accumulated_batches_are_one_large_batch(weights):
    whole, (step,) = trained([batch(np.arange(10), 0)], weights)
    pieces = [batch(np.arange(0, 4), 0), batch(np.arange(4, 8), 1), batch(np.arange(8, 10), 2)]
    parts, steps = trained(pieces, weights, accumulate=4)
    assert [s.updated for s in steps] == [False, False, True]
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    each = np.ones(10) if weights is None else np.array(weights)[Y[:10]]
    shares = [each[:4].sum(), each[4:8].sum(), each[8:].sum()]
    mean = sum(s.loss * share for s, share in zip(steps, shares, strict=True)) / each.sum()
    assert mean == pytest.approx(step.loss)


def test_gradients_left_by_others_do_not_count():
    clean, _ = trained([batch(np.arange(10), 0)])
    used, _ = trained([batch(np.arange(10), 0)], left=5.0)
    for a, b in zip(clean.parameters(), used.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_the_weights_change_every_few_batches():
    _, steps = trained([batch(np.arange(3), n) for n in range(5)], accumulate=2)
    assert [s.updated for s in steps] == [False, True, False, True, True]


def test_the_loss_is_that_of_torch():
    model, (step,) = trained([batch(np.arange(6), 0)], WEIGHTS, lr=1e-9)
    logits = model(torch.relu(torch.from_numpy(X[:6])))
    expected = nn.functional.cross_entropy(
        logits, torch.from_numpy(Y[:6]), torch.tensor(WEIGHTS)
    )
    assert step.loss == pytest.approx(expected.item(), rel=1e-5)
    assert step.correct == int((logits.argmax(1).numpy() == Y[:6]).sum()) and step.correct5 == 6


def scaled(factor: float = 1.0, **options):
    """Two batches for one change of weights, and another, with gradients scaled by 2**10."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    extractor, rest = build_transfer(model, "0", 3, 0, (4,))
    config = TrainConfig(**BASE | {"optimizer": "sgd", "lr": 0.1, "accumulate": 2})
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, **options)
    task, optimizer = TransferTask(extractor, rest, Timings()), build_optimizer(config, rest)
    stepper = Stepper(config, World(), task, optimizer, Timings(), scaler)
    if factor != 1.0:
        for parameter in rest.parameters():
            parameter.register_hook(lambda grad: grad * factor)
    for number in range(4):
        stepper.step(batch(np.arange(3 * number, 3 * number + 3), number), RunState(), 0.1, False)
    return rest, scaler


def test_scaled_gradients_give_the_same_weights():
    pieces = [batch(np.arange(3 * n, 3 * n + 3), n) for n in range(4)]
    plain, _ = trained(pieces, accumulate=2)
    model, scaler = scaled()
    for a, b in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert scaler.get_scale() == 1024.0
    assert scaled(growth_interval=2)[1].get_scale() == 2048.0  # Once for each change of weights.


def test_a_step_whose_gradients_overflow_is_left_out():
    model, scaler = scaled(factor=float("inf"))
    untrained, _ = trained([])
    for a, b in zip(untrained.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert scaler.get_scale() == 256.0


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_loss_that_is_no_number_ends_the_run(value):
    class Task:
        def loss(self, batch, seed):
            return Outcome(torch.tensor(value, requires_grad=True), 2.0, 2, 0, 0)

    config = TrainConfig(**BASE | {"lr": 0.1})
    optimizer = build_optimizer(config, nn.Linear(1, 1))
    stepper = Stepper(config, World(), Task(), optimizer, Timings())
    with pytest.raises(Diverged, match="epoch 1, step 3.*lower lr than 0.1"):
        stepper.step(batch(np.arange(2), 2), RunState(), 0.1, False)
