from __future__ import annotations

import io
import json

import pytest

from hapi_compute.plan.candidates import Candidate
from hapi_compute.store.counters import Counts
from hapi_compute.train.evaluate import Scores
from hapi_compute.train.plan import Plan
from hapi_compute.train.progress import Lines
from hapi_compute.train.report import STEPS, STORAGE_STEPS, Report
from hapi_compute.train.state import EpochRecord, RunState


def test_means_are_weighted_by_samples():
    record = EpochRecord(0)
    record.add(1.0, 10, 10)
    record.add(4.0, 0, 5)
    assert record.loss == pytest.approx(2.0) and record.accuracy == pytest.approx(2 / 3)
    assert (record.steps, record.samples) == (2, 15)


def test_state_survives_json():
    state = RunState(step_losses=[0.1 + 0.2, 1e-17])
    state.current.add(0.1, 1, 3)
    state.close_epoch()
    state.current.add(0.7, 2, 3)
    again = RunState.from_json(json.loads(json.dumps(state.to_json())))
    assert again == state and again.epoch == 1 and again.step == 2


def report() -> Report:
    return Report(
        Plan(Candidate(None), "raw was asked for", {"raw": 10.0}), "resnet18", 7,
        epochs=[EpochRecord(0, 1.5, 0.5, 2.0, 1_000_000, 3, 40, 0.25), EpochRecord(1)],
        step_losses=[2.0, 1.0], test=Scores(8, 0.75, 0.875, 0.5, [[3, 1], [1, 3]]),
        timings={"wait": 1.0, "extra": 2.0},
        storage={"infer": 3.0}, counts=Counts(5, 1, 2_000_000, 7), fallbacks=2, samples=40,
    )  # fmt: skip


def test_report_has_every_field_of_its_contract():
    document = json.loads(json.dumps(report().to_dict()))
    assert set(document) >= {
        "mode", "split", "epochs", "step_losses", "test_accuracy", "timings", "bytes_received",
        "requests", "retries", "fallbacks", "samples", "model", "seed", "plan",
    }  # fmt: skip
    assert (document["mode"], document["split"]) == ("raw", "raw")
    assert set(document["timings"]) >= {*STEPS, "storage", "extra"}
    assert set(document["timings"]["storage"]) == set(STORAGE_STEPS)
    first, second = document["epochs"]
    assert set(first) >= {"epoch", "loss", "accuracy", "val_accuracy", "seconds",
                          "bytes_received", "steps"}  # fmt: skip
    assert first["epoch"] == 1 and "val_accuracy" not in second


def test_table_for_humans():
    text = report().table()
    for part in ("0.7500", "0.250", "2.00 MB", "1 retries", "2 shards read raw", "wait 1.0"):
        assert part in text


def test_lines():
    stream = io.StringIO()
    progress = Lines(stream)
    progress.epoch_starts(0, 2, None, 0)
    progress.step(0, 0, 1.0)
    progress.epoch_ends(0, "done")
    assert stream.getvalue() == "done\n"


def test_the_best_epoch_and_how_long_ago_it_was():
    state = RunState()
    better = []
    for accuracy, loss in ((0.5, 1.0), (0.7, 0.9), (0.7, 0.8), (0.6, 0.1), (0.7, 0.8)):
        state.current.val_accuracy, state.current.val_loss = accuracy, loss
        better.append(state.close_epoch())
    assert better == [True, True, True, False, False]
    assert (state.best, state.without_gain()) == (2, 2)
    assert not RunState().close_epoch() and RunState().without_gain() == 0
