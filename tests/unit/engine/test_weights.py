"""Loaded extractors and the heads made of them."""

from __future__ import annotations

import asyncio

import torch

from benchmarks.building import chain
from swift_hapi.engine.device import Device
from swift_hapi.engine.model_files import OPERATOR, ModelFile
from swift_hapi.engine.weights import Weights
from swift_hapi.engine.workers import Workers
from swift_hapi.graph.extractor import load_extractor


def test_heads_are_kept_but_not_all_of_a_thousand_cuts(tmp_path):
    data = chain(60, "method", "sigmoid")
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    extractor = load_extractor(data)
    file = ModelFile(extractor.digest.removeprefix("sha256:"), "", len(data), path, OPERATOR)

    async def story():
        workers = Workers(cpus=1, decoders=1)
        try:
            weights = Weights(workers, Device("cpu"))
            first = await weights.head(file, extractor.cuts[1])
            for cut in extractor.cuts[2:16]:
                await weights.head(file, cut)
            assert await weights.head(file, extractor.cuts[1]) is first
            for cut in extractor.cuts[16:]:
                await weights.head(file, cut)
            again = await weights.head(file, extractor.cuts[1])
            assert again is not first
            assert weights.loads == 1
            x = torch.randn(2, *extractor.input_shape)
            assert torch.equal(again(x), first(x))
        finally:
            workers.shutdown()

    asyncio.run(asyncio.wait_for(story(), 60))
