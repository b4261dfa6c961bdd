from __future__ import annotations

import json

import pytest

from hapi_compute.train import journal
from hapi_compute.train.config import TrainConfig
from hapi_compute.train.journal import Files
from hapi_compute.train.state import RunState
from tests.unit.train.test_config import BASE


def advance(state: RunState, log: Files, steps: int) -> None:
    for _ in range(steps):
        state.step_losses.append(1 / (state.step + 1))
        state.current.add(state.step_losses[-1], 1, 2)
        log.step(state, state.step_losses[-1], 0.1)
    state.close_epoch()
    log.epoch(state)


def entries(out) -> list[dict]:
    return [json.loads(line) for line in (out / journal.NAME).read_text().splitlines()]


def test_a_resumed_run_takes_back_what_came_after_its_checkpoint(tmp_path):
    config = TrainConfig(**BASE | {"out": str(tmp_path)})
    state = RunState()
    with Files(config, state) as log:
        advance(state, log, 3)
        checkpoint = RunState.from_json(state.to_json())
        advance(state, log, 2)
    with open(tmp_path / journal.NAME, "a") as stream:
        stream.write('{"event": "st')  # Killed in the middle of a line.
    with Files(config, checkpoint) as log:
        advance(checkpoint, log, 1)
    found = entries(tmp_path)
    assert [e["step"] for e in found if e["event"] == "step"] == [1, 2, 3, 4]
    assert [e["epoch"] for e in found if e["event"] == "epoch"] == [1, 2]
    assert found[1]["loss"] == 0.5 and found[1]["lr"] == 0.1


def test_a_new_run_begins_a_new_log(tmp_path):
    config = TrainConfig(**BASE | {"out": str(tmp_path)})
    for _ in range(2):
        state = RunState()
        with Files(config, state) as log:
            advance(state, log, 2)
    assert len(entries(tmp_path)) == 3


def test_events_for_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = TrainConfig(**BASE | {"out": str(tmp_path), "tensorboard": True})
    state = RunState()
    with Files(config, state) as log:
        advance(state, log, 2)
    events = accumulator.EventAccumulator(str(tmp_path / journal.EVENTS)).Reload()
    assert [e.value for e in events.Scalars("loss/step")] == [1.0, 0.5]
    assert [e.step for e in events.Scalars("epoch/loss")] == [1]
