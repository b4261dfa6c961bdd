from __future__ import annotations

import pytest
import torch

from tests.unit.graph.models import Sample, sample


@pytest.fixture(scope="session", autouse=True)
def _few_threads():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def resnet() -> Sample:
    """resnet18 at 64 pixels, whole model as extractor."""
    return sample("resnet18", "random:1", 64)
