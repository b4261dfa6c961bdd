"""Twelve thousand objects in a store that lists them slowly, a few at a time."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter

import pytest

from hapi_compute.cli.main import main
from hapi_compute.data.listing import pin
from hapi_compute.data.windows import Layout, Share, training_windows
from hapi_compute.store.auth import Credentials
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.names import SwiftUrl
from hapi_compute.store.retry import RetryPolicy
from tests.unit.store.memory import MemorySwift

COUNT = 12_000
NAMES = [f"photos/class {number % 7}/{number:05d} \u00e9.jpg" for number in range(COUNT)]
#: no two pages alike, and one in four of a single name
PAGES = [1 if draw % 4 == 0 else draw for draw in random.Random(0).choices(range(400), k=400)]


@pytest.fixture(scope="module")
def swift():
    server = MemorySwift(delay=0.05, token_life=2.0)
    for name in NAMES:
        server.put("many", name, name.encode())
    server.put("many", "zebra/1.jpg", b"of another dataset")
    yield server
    server.close()


@pytest.fixture
def client(swift):
    swift.short_pages = list(PAGES)
    swift.seen.clear()
    login = Credentials(f"{swift.url}/auth", "test:tester", "testing")
    return SwiftClient(login, policy=RetryPolicy(attempts=1))


def pages(swift) -> int:
    return swift.seen["GET", "/v1/AUTH_test/many"]


@pytest.mark.slow
def test_all_are_listed_once(swift, client):
    found = Counter(each.name for each in client.list("many", "photos/"))
    assert len(found) == found.total() == COUNT and set(found) == set(NAMES)
    assert client.counters.snapshot().retries == 0
    # Over several lives of a token.
    assert pages(swift) > 50 and client.counters.snapshot().logins > 1
    print(f"{COUNT} objects in {pages(swift)} pages, {client.counters.snapshot()}")


@pytest.mark.slow
def test_hapi_ls(swift, client, tmp_path, monkeypatch, capsys):
    for name, value in (("AUTH", f"{swift.url}/auth"), ("USER", "test:tester"),
                        ("KEY", "testing")):  # fmt: skip
        monkeypatch.setenv(f"ST_{name}", value)
    assert main(["ls", "many/photos/", "--json", str(tmp_path / "ls.json")]) == 0
    document = json.loads((tmp_path / "ls.json").read_text())
    assert document["count"] == COUNT and pages(swift) > 50
    assert sorted(each["name"] for each in document["objects"]) == sorted(NAMES)
    assert document["bytes"] == sum(len(name.encode()) for name in NAMES)
    assert len(capsys.readouterr().out.splitlines()) == COUNT + 1


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 3])
def test_an_epoch_has_each_of_them_once(swift, client, ranks):
    dataset = pin(client, SwiftUrl("many", "photos"))
    assert len(dataset.shards) == dataset.samples == COUNT
    assert dataset.classes == tuple(f"class {n}" for n in range(7))
    orders = []
    for epoch in range(2):
        windows = training_windows(dataset, 5, epoch, 8)
        found = []
        for rank in range(ranks):
            layout = Layout(64, COUNT, Share(rank, ranks))
            found.append([job.shard.name for job in layout.jobs(windows, lambda _epoch: None)])
        whole = list(itertools.chain(*found))
        assert len(whole) == COUNT and set(whole) == set(NAMES)
        assert max(map(len, found)) - min(map(len, found)) <= COUNT // 64 + 1
        orders.append(whole)
    assert orders[0] != orders[1]
    # Nothing but listings was asked for, and whether there is a manifest.
    asked = {path for _, path in swift.seen} - {"/auth", "/v1/AUTH_test/many"}
    assert asked == {"/v1/AUTH_test/many/photos/hapi-dataset.json"}
