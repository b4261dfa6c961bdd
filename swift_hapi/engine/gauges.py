"""Gauges of one engine: what its parts would answer if they were asked just now."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_hapi.engine.engine import Engine


def watch_engine(engine: Engine) -> None:
    """Register them with the engine's metrics."""
    watch, total = engine.metrics.watch, engine.metrics.watch_total
    device = engine.controller.devices[0]
    ledger, lanes = device.ledger, device.lanes
    watch("queue_depth", "Requests waiting to be admitted", lambda: ledger.door.waiting)
    watch("in_flight", "Requests admitted and not yet answered", lambda: ledger.door.holders)
    watch("waiting_for_output", "Requests waiting for memory for their response",
          lambda: ledger.seats.waiting)  # fmt: skip
    watch("samples_waiting", "Samples that are in no micro-batch yet",
          lambda: sum(lane.queue.waiting for lane in lanes.busy.values()))  # fmt: skip
    watch("lanes", "Lanes with work", lambda: len(lanes.busy))
    watch("lanes_waiting", "Lanes with work that memory does not suffice for",
          lambda: len(lanes.plan().waiting))  # fmt: skip
    watch("expected_seconds", "Estimated time until all work is done",
          device.outlook.expected_seconds)  # fmt: skip
    watch("budget_bytes", "Memory that may be granted", lambda: ledger.budget)
    watch("granted_bytes", "Memory granted in all", lambda: ledger.used)
    watch("object_bytes", "Memory granted to objects", lambda: ledger.door.total)
    watch("output_bytes", "Memory granted to responses", lambda: ledger.seats.total)
    watch("work_bytes", "Memory granted to micro-batches", lambda: ledger.reserved)
    watch("weight_bytes", "Memory granted to weights", lambda: ledger.weights.total)
    watch("models_known", "Extractors whose graph is in memory", lambda: len(engine.memory))
    watch("models_loaded", "Extractors whose weights are in memory",
          lambda: len(engine.weights.digests()))  # fmt: skip
    watch("models_cached", "Uploaded extractor files on disk", lambda: len(engine.files.cached))
    watch("models_cached_bytes", "Their size", lambda: engine.files.cached.nbytes)
    watch("ready", "1 once the warm-up is over", lambda: engine.ready)
    total("model_loads", "Extractor files read", lambda: engine.weights.loads)
    total("evictions", "Extractors whose weights were dropped", lambda: engine.weights.evictions)
    total("allocation_failures", "Micro-batches that could not get their memory",
          lambda: engine.driver.failures)  # fmt: skip
