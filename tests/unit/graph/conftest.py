from __future__ import annotations

import pytest
import torch

from swift_hapi.graph.extractor import save_extractor
from swift_hapi.graph.split import make_extractor
from tests.unit.graph.models import Sample, Small, sample


@pytest.fixture(scope="session", autouse=True)
def _few_threads():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def resnet() -> Sample:
    """resnet18 at 64 pixels, whole model as extractor."""
    return sample("resnet18", "random:1", 64)


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> bytes:
    """The file of a small network."""
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("files") / "small.safetensors"
    save_extractor(make_extractor(Small().eval(), None, (3, 8, 8)), path)
    return path.read_bytes()
