"""Limits and totals of accounts."""

from __future__ import annotations

import pytest

from swift_hapi.engine import accounts
from swift_hapi.engine.accounts import AccountLimits, Ledger, Usage
from swift_hapi.engine.metrics import OTHERS, Metrics
from swift_hapi.protocol.errors import AccountLimit


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def limits(concurrency=2, rate=0.0, clock=None) -> AccountLimits:
    return AccountLimits(concurrency, rate, lambda: 7, clock or Clock())


def test_concurrency_by_account():
    gate = limits()
    gate.enter("a")
    gate.enter("a")
    with pytest.raises(AccountLimit, match="account a has 2") as caught:
        gate.enter("a")
    assert caught.value.retry_after == 7
    gate.enter("b")
    gate.leave("a")
    gate.enter("a")


def test_rate_by_account():
    clock = Clock()
    gate = limits(concurrency=100, rate=2.0, clock=clock)
    gate.enter("a")
    gate.enter("a")
    with pytest.raises(AccountLimit, match="more than 2 requests per second") as caught:
        gate.enter("a")
    assert caught.value.retry_after == 1
    gate.enter("b")
    clock.now += 0.5
    gate.enter("a")
    with pytest.raises(AccountLimit):
        gate.enter("a")


def test_a_slow_rate_says_how_long():
    gate = limits(concurrency=100, rate=0.1)
    gate.enter("a")
    with pytest.raises(AccountLimit) as caught:
        gate.enter("a")
    assert caught.value.retry_after == 10


def test_a_refused_request_counts_for_nothing():
    clock = Clock()
    gate = limits(concurrency=1, rate=1.0, clock=clock)
    gate.enter("a")
    for _ in range(5):
        with pytest.raises(AccountLimit):
            gate.enter("a")
    gate.leave("a")
    clock.now += 1.0
    gate.enter("a")


def test_idle_accounts_are_forgotten(monkeypatch):
    clock = Clock()
    gate = limits(rate=1.0, clock=clock)
    for i in range(50):
        gate.enter(f"a{i}")
        gate.leave(f"a{i}")
    assert len(gate._buckets) == 50
    clock.now += 10
    gate.enter("late")
    assert list(gate._buckets) == ["late"]
    assert list(gate._under_way) == ["late"]


def test_totals_are_bounded(monkeypatch):
    monkeypatch.setattr(accounts, "_KEPT", 3)
    ledger = Ledger()
    for i in range(5):
        ledger.charge(f"a{i}", Usage(requests=1, cpu_seconds=float(i)))
    ledger.charge("a3", Usage(requests=2, samples=5, bytes_in=7))
    top = ledger.top(2)
    assert list(top) == ["a4", "a3"]
    assert top["a3"] == Usage(requests=3, samples=5, cpu_seconds=3.0, bytes_in=7)
    assert len(ledger.top(99)) == 3


def test_time_series_by_account_are_bounded():
    metrics = Metrics(accounts=2)
    for name, cpu in (("a", 1.0), ("b", 2.0), ("c", 4.0), ("d", 8.0), ("a", 16.0)):
        usage = Usage(requests=1, samples=3, cpu_seconds=cpu, bytes_out=10)
        metrics.charge(name, usage)
        metrics.computed("m", usage)
    text = metrics.exposition().decode()
    assert 'hapi_engine_account_cpu_seconds_total{account="a"} 17.0' in text
    assert 'hapi_engine_account_cpu_seconds_total{account="b"} 2.0' in text
    assert f'hapi_engine_account_cpu_seconds_total{{account="{OTHERS}"}} 12.0' in text
    assert 'account="c"' not in text
    assert 'hapi_engine_model_samples_total{model="m"} 15.0' in text
    assert "hapi_engine_bytes_out_total 50.0" in text


def test_no_time_series_by_account_when_none_are_wanted():
    metrics = Metrics(accounts=0)
    metrics.charge("a", Usage(requests=1, samples=1))
    metrics.computed("m", Usage(requests=1, samples=1))
    assert "account" not in metrics.exposition().decode()
    assert metrics.counters()["samples"] == 1
