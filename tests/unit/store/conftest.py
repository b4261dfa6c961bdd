from __future__ import annotations

import pytest

from hapi_compute.store.auth import Credentials
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.retry import Retrier, RetryPolicy
from tests.unit.store.server import ScriptedSwift


@pytest.fixture
def swift():
    server = ScriptedSwift()
    yield server
    server.close()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(swift, pauses) -> SwiftClient:
    """A client of the scripted server; its pauses are recorded, not slept."""
    retrier = Retrier(RetryPolicy(attempts=3), sleep=pauses.append, draw=lambda: 0.5)
    return SwiftClient(Credentials(f"{swift.url}/auth", "test:tester", "testing"), retrier=retrier)
