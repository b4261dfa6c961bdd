"""A Swift in memory, for everybody who does not bring one of their own."""

from __future__ import annotations

import pytest

from hapi_compute.store.auth import Credentials
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.retry import RetryPolicy
from tests.unit.store.memory import MemorySwift


@pytest.fixture
def swift():
    server = MemorySwift()
    yield server
    server.close()


@pytest.fixture
def store(swift) -> SwiftClient:
    credentials = Credentials(f"{swift.url}/auth", "test:tester", "testing")
    return SwiftClient(credentials, policy=RetryPolicy(attempts=1))
