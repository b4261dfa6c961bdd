from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _few_threads():
    torch.set_num_threads(1)
