"""Models are measured in quiet moments, once, and what is found is remembered."""

from __future__ import annotations

import asyncio
import json

import pytest
import torch
from torch import nn

from swift_hapi.engine import calibration
from swift_hapi.engine.calibration import Calibrator
from swift_hapi.engine.loaded import LoadedModel
from swift_hapi.engine.turns import ON_BEHALF_OF
from swift_hapi.graph.extractor import load_extractor, save_extractor
from swift_hapi.graph.memory import UNMEASURED
from swift_hapi.graph.split import make_extractor
from tests.unit.engine.client import ask
from tests.unit.engine.conftest import EngineProcess

GB = 10**9


class Books:
    def __init__(self, room: bool = True):
        self.room = room
        self.held: list[int] = []

    def hold_weights(self, digest: str, nbytes: int) -> bool:
        if self.room:
            self.held.append(nbytes)
        return self.room

    def settle_weights(self, digest: str, nbytes: int) -> None:
        assert nbytes == 0
        self.held.append(0)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten()).eval()
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_extractor(make_extractor(model, None, (3, 32, 32)), path)
    return path


def calibrator(directory, path, books, setting="v1", memory=4 * GB, **options) -> Calibrator:
    busy = options.pop("busy", lambda: False)
    return Calibrator(
        directory, setting, 1, memory, books, lambda digest: path, busy, quiet=0.01, **options
    )


async def learn(made: Calibrator, model: LoadedModel) -> None:
    made.learnt(model)
    if made._task is not None:
        await made._task
    await made.close()


def model_of(path) -> LoadedModel:
    return LoadedModel(load_extractor(path), None)


def test_measured_once_and_remembered(tmp_path, path):
    books, first = Books(), model_of(path)
    made = calibrator(tmp_path, path, books)
    asyncio.run(learn(made, first))
    assert made.measured == 1 and first.memory != UNMEASURED
    # Its memory was booked while it was measured.
    assert books.held[0] > 300_000_000 and books.held[1:] == [0]

    second = model_of(path)
    again = calibrator(tmp_path, path, books)
    asyncio.run(learn(again, second))
    assert again.measured == 0 and second.memory == first.memory

    # Another version may need other memory.
    other = calibrator(tmp_path, path, books, setting="v2")
    asyncio.run(learn(other, model_of(path)))
    assert other.measured == 1


def test_without_memory_to_spare_it_stays_a_guess(tmp_path, path, caplog):
    for made, words in (
        (calibrator(tmp_path, path, Books(room=False)), "to spare"),
        (calibrator(tmp_path, path, Books(), memory=1000), "more than 1000 bytes"),
    ):
        model = model_of(path)
        asyncio.run(learn(made, model))
        assert model.memory == UNMEASURED
        assert words in caplog.text


def test_a_file_that_has_gone_or_does_not_load_is_passed_over(tmp_path, path, caplog):
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"nothing")
    books = Books()
    model = model_of(path)
    asyncio.run(learn(calibrator(tmp_path, None, books), model))
    assert books.held == []
    asyncio.run(learn(calibrator(tmp_path, broken, books), model))
    assert books.held[-1] == 0
    assert "exit status 1" in caplog.text and model.memory == UNMEASURED


def test_it_waits_while_the_engine_works(tmp_path, path):
    async def story():
        working = True
        made = calibrator(tmp_path, path, Books(), busy=lambda: working)
        model = model_of(path)
        made.learnt(model)
        await asyncio.sleep(0.2)
        assert made.measured == 0
        working = False
        await made._task
        assert made.measured == 1

    asyncio.run(story())


def test_what_is_remembered_is_checked(tmp_path, path):
    model = model_of(path)
    made = calibrator(tmp_path, path, Books(), measures=False)
    name = f"{model.digest.removeprefix('sha256:')}.memory.json"
    setting = {"setting": "v1 threads=1"}
    for text in ("{", "[]", json.dumps(setting), json.dumps(setting | {"once": -1, "times": 1})):
        (tmp_path / name).write_text(text)
        made.learnt(model)
        assert model.memory == UNMEASURED
    (tmp_path / name).write_text(json.dumps(setting | {"once": 5e6, "times": 1.1}))
    made.learnt(model)
    assert model.memory.times == 1.1


def test_closing_ends_the_measuring_process(tmp_path, path):
    async def story():
        books = Books()
        made = calibrator(tmp_path, path, books)
        made.learnt(model_of(path))
        while not books.held:
            await asyncio.sleep(0.01)
        await made.close()
        assert books.held[-1] == 0 and made.measured == 0

    asyncio.run(story())


def test_an_engine_measures_what_it_gets_to_know(tmp_path, models):
    process = EngineProcess(tmp_path, measure_memory="true", memory_budget="1 GiB").start()
    try:
        model = models[0]
        answer = ask(process.socket, "PUT", f"/v1/models/{model.hex}", model.path.read_bytes())
        assert answer.status == 201
        process.wait_until(lambda: process.status()["models"]["measured"] == 1, 120)
        # Its memory is free again, and the finding is kept.
        assert process.idle()
        assert (tmp_path / "cache" / f"{model.hex}.memory.json").exists()
        process.stop()
        process = EngineProcess(tmp_path, measure_memory="false").start()
        # The finding is no model.
        assert process.status()["models"]["cached"] == 1
        assert ask(process.socket, "HEAD", f"/v1/models/{model.hex}").status == 200
    finally:
        process.stop()


def test_work_stops_it_and_it_is_tried_again(tmp_path, path):
    async def story():
        working, books = False, Books()
        made = calibrator(tmp_path, path, books, busy=lambda: working)
        made.learnt(model_of(path))
        while not books.held:
            await asyncio.sleep(0.01)
        working = True
        while books.held[-1]:
            await asyncio.sleep(0.01)
        assert made.measured == 0
        working = False
        await made._task
        assert made.measured == 1 and sum(map(bool, books.held)) == 2

    asyncio.run(asyncio.wait_for(story(), 100))


def test_it_takes_no_more_than_some_seconds_of_cpu(tmp_path, path, caplog, monkeypatch):
    monkeypatch.setattr(calibration, "_CPU", 1)  # less than torch takes to start
    books, model = Books(), model_of(path)
    asyncio.run(learn(calibrator(tmp_path, path, books), model))
    assert "CPU" in caplog.text and model.memory == UNMEASURED
    assert books.held[-1] == 0


def test_accounts_have_their_models_measured_in_turn(tmp_path, path):
    async def story():
        made = calibrator(tmp_path, path, Books(), busy=lambda: True)
        models = [model_of(path) for _ in range(12)]
        ON_BEHALF_OF.set("many")
        for model in models[:10]:
            made.learnt(model)
        ON_BEHALF_OF.set("one")
        made.learnt(models[10])
        order = [made._next() for _ in range(9)]
        assert not made._waiting  # two of the ten were too many
        assert [account for account, _, _ in order] == ["many", "one", *["many"] * 7]
        assert [model for _, model, _ in order] == [models[0], models[10], *models[1:8]]
        for number in range(100):
            ON_BEHALF_OF.set(str(number))
            made.learnt(models[0])
        assert len(made._waiting) == 64
        await made.close()

    asyncio.run(story())


def test_slow_networks_are_measured_with_few_samples(tmp_path, path):
    made = calibrator(tmp_path, path, Books())
    assert [made._batches(0, 1, flops)[0] for flops in (1e9, 30e9, 4e12)] == [
        (4, 16),
        (2, 8),
        (1, 4),
    ]
