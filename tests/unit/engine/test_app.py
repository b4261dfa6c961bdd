"""Errors become problem documents; in process, since a real engine has no bug to show."""

from __future__ import annotations

import asyncio
import json

import pytest

from swift_hapi.engine.app import make_app
from swift_hapi.engine.config import EngineConfig
from swift_hapi.engine.engine import Engine


@pytest.fixture
def engine(tmp_path):
    config = EngineConfig(model_dir=tmp_path, cache_dir=tmp_path / "cache")
    made = Engine(config)
    yield made
    made.workers.shutdown()


def call(engine: Engine, path: str, method: str = "GET", cancel: bool = False):
    """(status, headers, problem document, what was raised)"""
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"x-trans-id", b"tx\xff1")],
        "state": {},
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    async def story():
        task = asyncio.ensure_future(make_app(engine, lambda: None)(scope, receive, send))
        if cancel:
            await asyncio.sleep(0.01)
            task.cancel()
        await asyncio.wait({task})
        return task.exception()

    raised = asyncio.run(story())
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], headers, json.loads(body), raised


def test_a_bug_is_a_problem_document_too(engine, monkeypatch):
    def broken():
        raise RuntimeError("secret detail")

    monkeypatch.setattr(engine, "status", broken)
    status, headers, document, raised = call(engine, "/v1/status")
    assert (status, document["type"]) == (500, "urn:hapi:error:internal")
    assert headers["content-type"] == "application/problem+json"
    assert document["trans_id"] == "tx?1"
    assert "secret" not in json.dumps(document)
    # For the server's log.
    assert isinstance(raised, RuntimeError)


def test_cancelled_by_the_server(engine, monkeypatch):
    forever = asyncio.Event

    async def wait(*_):
        await forever().wait()

    monkeypatch.setattr("swift_hapi.engine.model_api.ModelEndpoints._receive", wait)
    status, headers, document, raised = call(engine, "/v1/models", "POST", cancel=True)
    assert (status, document["type"]) == (503, "urn:hapi:error:engine-unavailable")
    assert int(headers["retry-after"]) > 0
    assert raised is None


def test_nothing_is_served_before_the_warm_up(engine):
    for method, path, kind in (
        ("GET", "/readyz", "engine-unavailable"),
        ("POST", "/v1/models", "engine-busy"),
    ):
        status, headers, document, _ = call(engine, path, method)
        assert (status, document["type"]) == (503, f"urn:hapi:error:{kind}")
        assert int(headers["retry-after"]) > 0


def test_metrics_count_by_route_and_not_by_path(engine):
    for path in ("/a", "/b", "/v1/models/x/y"):
        assert call(engine, path)[0] == 404
    text = engine.metrics.exposition().decode()
    assert 'hapi_engine_requests_total{route="other",status="404"} 2.0' in text
    assert '"/a"' not in text
