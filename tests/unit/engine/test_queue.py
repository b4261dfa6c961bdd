"""Waiting for admission: who leaves is noticed without having been told to send."""

from __future__ import annotations

import pytest

from tests.unit.engine.client import Expecting, ask
from tests.unit.engine.conftest import EngineProcess, feature_headers, shard


@pytest.fixture(scope="module")
def patient(tmp_path_factory, models):
    """One place and much patience."""
    directory = tmp_path_factory.mktemp("patient")
    process = EngineProcess(directory, queue_depth=1, admission_timeout=50, batch_size=2)
    (directory / "models" / "net1.safetensors").write_bytes(models[0].path.read_bytes())
    try:
        yield process.start()
    finally:
        process.stop()


def expecting(engine, models, body: bytes) -> Expecting:
    headers = feature_headers(models[0].digest)
    return Expecting(engine.socket, "POST", "/v1/features", len(body), headers)


def test_leaving_while_waiting_and_being_admitted_after(patient, models):
    body = shard(1)
    waiting = lambda: patient.status()["queue"]["waiting"]  # noqa: E731
    with expecting(patient, models, body) as first:
        first.wait_for_100()
        leaver = expecting(patient, models, body)
        patient.wait_until(lambda: waiting() == 1)
        leaver.close()
        patient.wait_until(lambda: waiting() == 0)
        with expecting(patient, models, body) as third:
            patient.wait_until(lambda: waiting() == 1)
            # As many may wait as there are places.
            with expecting(patient, models, body) as fourth:
                answer = fourth.answer()
            assert (answer.status, answer.problem) == (503, "engine-busy")
            first.send(body)
            assert first.answer().status == 200
            third.wait_for_100()
            third.send(body)
            assert third.answer().status == 200
    patient.wait_until(patient.idle)
    assert patient.status()["counters"]["clients_gone"] == 1


def test_metrics_tell_what_happened(patient, models):
    text = ask(patient.socket, "GET", "/metrics").body.decode()
    for line in (
        'hapi_engine_requests_total{route="/v1/features",status="200"}',
        'hapi_engine_refused_total{reason="engine-busy"}',
        'hapi_engine_stage_seconds_bucket{le="+Inf",stage="infer"}',
        "hapi_engine_micro_batch_samples_sum",
        "hapi_engine_admitted_total",
        "hapi_engine_bytes_in_total",
        "hapi_engine_bytes_out_total",
        "hapi_engine_queue_depth 0.0",
        "hapi_engine_in_flight 0.0",
        "hapi_engine_models_loaded 1.0",
    ):
        assert line in text
