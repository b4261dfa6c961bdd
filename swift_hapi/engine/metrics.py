"""What the engine counts, for Prometheus (``/metrics``) and for ``/v1/status``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from swift_hapi.engine.accounts import Usage
from swift_hapi.engine.timing import STAGES

CONTENT_TYPE = CONTENT_TYPE_LATEST
#: Label of everybody who has none of his own.
OTHERS = "(others)"
_MODELS = 100
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Labels:
    """The first ``most`` names keep themselves as labels, all later ones share one: the number of
    time series is bounded, and none of them ever goes backwards."""

    def __init__(self, most: int):
        self._most = most
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHERS
            self._known.add(name)
        return name


class _Accounts:
    """Collector of totals by account."""

    _FAMILIES = (
        ("requests", "requests", "Feature requests that were computed"),
        ("samples", "samples", "Samples whose features were made"),
        ("cpu_seconds", "cpu_seconds", "CPU time: decoding, network, encoding"),
        ("bytes_in", "bytes_in", "Object bytes received"),
        ("bytes_out", "bytes_out", "Feature bytes sent"),
    )

    def __init__(self, most: int):
        self._most = most
        self._labels = Labels(most)
        self._totals: dict[str, Usage] = {}

    def charge(self, account: str, usage: Usage) -> None:
        self._totals.setdefault(self._labels.of(account), Usage()).add(usage)

    def collect(self) -> Iterable[Metric]:
        if not self._most:
            return
        for name, attribute, help_ in self._FAMILIES:
            family = CounterMetricFamily(f"hapi_engine_account_{name}", help_, labels=["account"])
            for account, usage in self._totals.items():
                family.add_metric([account], getattr(usage, attribute))
            yield family


class Metrics:
    """All metrics of one engine, in a registry of its own.

    :param accounts: how many accounts have time series of their own; 0 for none at all
    """

    def __init__(self, accounts: int = 0):
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
        self.micro_batch_seconds = Histogram(
            "hapi_engine_micro_batch_seconds", "Time of a micro-batch in the network",
            buckets=_SECONDS, **of,
        )  # fmt: skip
        self._models = Labels(_MODELS)
        by_model = ("model",)
        self._model_requests = Counter(
            "hapi_engine_model_requests", "Feature requests computed, by model", by_model, **of
        )
        self._model_samples = Counter(
            "hapi_engine_model_samples", "Samples computed, by model", by_model, **of
        )
        self._accounts = _Accounts(accounts)
        self.registry.register(self._accounts)
        for stage in STAGES:
            self.stage.labels(stage)

    def charge(self, account: str, usage: Usage) -> None:
        """Count a part of what an account has used."""
        self._accounts.charge(account, usage)

    def computed(self, model: str, usage: Usage) -> None:
        """Count one computed request.

        :param model: a name of the operator's or a digest
        """
        self.samples.inc(usage.samples)
        self.bytes_out.inc(usage.bytes_out)
        label = self._models.of(model)
        self._model_requests.labels(label).inc()
        self._model_samples.labels(label).inc(usage.samples)

    def watch(self, name: str, help_: str, value: Callable[[], float]) -> None:
        """A gauge that asks ``value`` whenever it is read."""
        Gauge(f"hapi_engine_{name}", help_, registry=self.registry).set_function(value)

    def watch_total(self, name: str, help_: str, value: Callable[[], float]) -> None:
        """A counter that asks ``value`` whenever it is read."""
        self.registry.register(_Total(f"hapi_engine_{name}", help_, value))

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def counters(self) -> dict[str, float]:
        """Plain totals for ``/v1/status``."""
        totals = {}
        for metric in self.registry.collect():
            name = metric.name.removeprefix("hapi_engine_")
            if metric.type == "counter" and not name.startswith("account_"):
                totals[name] = sum(
                    sample.value for sample in metric.samples if sample.name.endswith("_total")
                )
        return totals


class _Total:
    def __init__(self, name: str, help_: str, value: Callable[[], float]):
        self._name, self._help, self._value = name, help_, value

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self._name, self._help)
        family.add_metric([], self._value())
        yield family
