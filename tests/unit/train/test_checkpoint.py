from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from hapi_compute.train import checkpoint
from hapi_compute.train.checkpoint import Identity
from hapi_compute.train.config import TrainConfig
from hapi_compute.train.errors import CheckpointMismatch
from hapi_compute.train.optim import build_optimizer
from hapi_compute.train.state import RunState
from tests.unit.train.test_config import BASE


def build(optimizer="adamw", seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    config = TrainConfig(**BASE | {"optimizer": optimizer, "lr": 0.05})
    return model, build_optimizer(config, model), config


def steps(model, optimizer, numbers) -> list[float]:
    losses = []
    for number in numbers:
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(8, 6, generator=generator)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def load(path, *args):
    return checkpoint.load(path.read_bytes(), path, *args)


def identity(config) -> Identity:
    return Identity(config.identity(), "dataset-digest", "sha256:x")


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_going_on_is_as_if_never_stopped(tmp_path, optimizer):
    model, optim, config = build(optimizer)
    whole = steps(model, optim, range(8))

    model, optim, config = build(optimizer)
    state = RunState()
    state.step_losses = steps(model, optim, range(5))
    state.current.add(1.5, 3, 8)
    state.close_epoch()
    path = tmp_path / checkpoint.NAME
    checkpoint.save(path, identity(config), state, model, optim)

    model, optim, config = build(optimizer, seed=99)
    found = load(path, identity(config), model, optim)
    assert dataclasses.asdict(found) == dataclasses.asdict(state)
    assert found.step_losses + steps(model, optim, range(5, 8)) == whole
    assert [p.name for p in tmp_path.iterdir()] == [checkpoint.NAME]


def test_before_the_first_step(tmp_path):
    model, optim, config = build("sgd")
    path = tmp_path / checkpoint.NAME
    checkpoint.save(path, identity(config), RunState(), model, optim)
    assert load(path, identity(config), model, optim).step == 0


def test_another_run_is_refused_and_says_why(tmp_path):
    model, optim, config = build()
    path = tmp_path / checkpoint.NAME
    checkpoint.save(path, identity(config), RunState(), model, optim)
    other = dataclasses.replace(config, lr=0.1)
    with pytest.raises(CheckpointMismatch, match="another lr: 0.05, not 0.1"):
        load(path, identity(other), model, optim)
    with pytest.raises(CheckpointMismatch, match="dataset's objects"):
        load(path, Identity(config.identity(), "other", "sha256:x"), model, optim)
    with pytest.raises(CheckpointMismatch, match="frozen part"):
        load(path, Identity(config.identity(), "dataset-digest", "sha256:y"), model, optim)


def test_another_precision_is_refused(tmp_path):
    model, optim, config = build()
    path = tmp_path / checkpoint.NAME
    checkpoint.save(path, identity(config), RunState(), model, optim)
    other = dataclasses.replace(config, precision="bfloat16")
    with pytest.raises(CheckpointMismatch, match="another precision: 'float32', not 'bfloat16'"):
        load(path, identity(other), model, optim)


def test_what_was_saved_before_there_was_a_choice_is_float32(tmp_path):
    model, optim, config = build()
    old = identity(config)
    del old.options["precision"]
    path = tmp_path / checkpoint.NAME
    checkpoint.save(path, old, RunState(), model, optim)
    assert load(path, identity(config), model, optim).step == 0
    with pytest.raises(CheckpointMismatch, match="another precision"):
        other = dataclasses.replace(config, precision="bfloat16")
        load(path, identity(other), model, optim)


def test_the_scale_of_gradients_goes_on(tmp_path):
    model, optim, config = build()
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    for _ in range(5):
        optim.zero_grad()
        scaler.scale(model(torch.randn(8, 6)).sum()).backward()
        scaler.step(optim)
        scaler.update()
    path = tmp_path / checkpoint.NAME
    checkpoint.save(path, identity(config), RunState(), model, optim, scaler)
    fresh = torch.amp.GradScaler("cpu")
    load(path, identity(config), model, optim, fresh)
    assert fresh.state_dict() == scaler.state_dict()
    assert (fresh.get_scale(), fresh.state_dict()["_growth_tracker"]) == (128.0, 2)


def test_other_layers_are_refused(tmp_path):
    model, optim, config = build()
    path = tmp_path / checkpoint.NAME
    checkpoint.save(path, identity(config), RunState(), model, optim)
    with pytest.raises(CheckpointMismatch, match="does not fit"):
        load(path, identity(config), nn.Linear(2, 2), optim)


def test_damage_is_noticed(tmp_path):
    model, optim, config = build()
    path = tmp_path / checkpoint.NAME
    checkpoint.save(path, identity(config), RunState(), model, optim)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointMismatch):
        load(path, identity(config), model, optim)
    path.write_bytes(b"xx")
    with pytest.raises(CheckpointMismatch):
        load(path, identity(config), model, optim)
