"""How much is remembered of models that are known."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.building import chain
from swift_hapi.engine import loaded, model_memory
from swift_hapi.engine.device import Device
from swift_hapi.engine.loaded import LoadedModel
from swift_hapi.engine.model_files import OPERATOR, ModelFile
from swift_hapi.engine.model_memory import ModelMemory
from swift_hapi.engine.weights import Weights
from swift_hapi.engine.workers import Workers
from swift_hapi.graph.extractor import load_extractor


class Books:
    """There is never room for weights that are not needed just now."""

    def hold_weights(self, digest: str, nbytes: int) -> bool:
        return False

    def settle_weights(self, digest: str, nbytes: int) -> None:
        raise AssertionError("none are held")


@pytest.fixture
def workers():
    made = Workers(cpus=1, decoders=1)
    yield made
    made.shutdown()


def model_file(directory: Path, nodes: int) -> ModelFile:
    data = chain(nodes - 1, "method", "sigmoid")
    hex_ = load_extractor(data).digest.removeprefix("sha256:")
    path = directory / f"{nodes}.safetensors"
    path.write_bytes(data)
    return ModelFile(hex_, "", len(data), path, OPERATOR)


def test_large_graphs_are_forgotten_earlier(tmp_path, workers, monkeypatch):
    monkeypatch.setattr(model_memory, "_NODES", 100)

    async def story():
        memory = ModelMemory(1 << 20, workers, Weights(workers, Device("cpu")), Books())
        files = {nodes: model_file(tmp_path, nodes) for nodes in (30, 40, 20, 60, 300)}

        async def known_after(nodes: int) -> list[int]:
            await memory.get(files[nodes], 60)
            sizes = {f"sha256:{file.hex}": size for size, file in files.items()}
            return [sizes[digest] for digest in memory.digests()]

        assert await known_after(30) == [30]
        assert await known_after(40) == [30, 40]
        assert await known_after(20) == [30, 40, 20]
        assert await known_after(30) == [40, 20, 30]
        # The least recently used go until the rest fits.
        assert await known_after(60) == [30, 60]
        # One is known however large it is.
        assert await known_after(300) == [300]

    asyncio.run(asyncio.wait_for(story(), 60))


def test_few_shapes_and_profiles_of_large_graphs_are_kept(workers, monkeypatch):
    monkeypatch.setattr(loaded, "_CUTS", 40)
    monkeypatch.setattr(loaded, "_STEPS", 60)
    model = LoadedModel(load_extractor(chain(19, "method", "sigmoid")), workers)
    assert model.nodes == 20

    async def story():
        for size in range(9, 14):
            await model.cut("n3", (3, 8, size))
        assert list(model._cuts) == [(3, 8, 12), (3, 8, 13)]
        for index in range(1, 6):
            cut = await model.cut(str(index), (3, 8, 8))
            footprint = await model.footprint(cut, (3, 8, 8))
            assert footprint.input == 4 * 3 * 8 * 8
        assert [index for index, _ in model._profiles] == [3, 4, 5]

    asyncio.run(asyncio.wait_for(story(), 60))
