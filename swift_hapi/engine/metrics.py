"""What the engine counts, for Prometheus (``/metrics``) and for ``/v1/status``."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from swift_hapi.engine.timing import STAGES

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """All metrics of one engine, in a registry of its own."""

    def __init__(self):
        self.registry = CollectorRegistry()
        of = {"registry": self.registry}
        self.requests = Counter(
            "hapi_engine_requests", "Answers by route and status", ("route", "status"), **of
        )
        self.admitted = Counter("hapi_engine_admitted", "Feature requests admitted", **of)
        self.refused = Counter(
            "hapi_engine_refused", "Requests refused, by the problem's name", ("reason",), **of
        )
        self.gone = Counter("hapi_engine_clients_gone", "Clients that left early", **of)
        self.bytes_in = Counter("hapi_engine_bytes_in", "Object bytes received", **of)
        self.bytes_out = Counter("hapi_engine_bytes_out", "Feature bytes sent", **of)
        self.samples = Counter("hapi_engine_samples", "Samples whose features were made", **of)
        self.sample_errors = Counter("hapi_engine_sample_errors", "Samples left out", **of)
        self.stage = Histogram(
            "hapi_engine_stage_seconds",
            "Time of a feature request by stage (decode: summed over threads)",
            ("stage",),
            buckets=_SECONDS,
            **of,
        )
        self.micro_batch = Histogram(
            "hapi_engine_micro_batch_samples", "Samples per micro-batch", buckets=_BATCHES, **of
        )
        for stage in STAGES:
            self.stage.labels(stage)

    def watch(self, name: str, help_: str, value: Callable[[], float]) -> None:
        """A gauge that asks ``value`` whenever it is read."""
        Gauge(f"hapi_engine_{name}", help_, registry=self.registry).set_function(value)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def counters(self) -> dict[str, float]:
        """Plain totals for ``/v1/status``."""
        totals = {}
        for metric in self.registry.collect():
            if metric.type == "counter":
                totals[metric.name.removeprefix("hapi_engine_")] = sum(
                    sample.value for sample in metric.samples if sample.name.endswith("_total")
                )
        return totals
