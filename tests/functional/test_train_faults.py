"""Training goes on when parts of the house burn, or ends with an error that says what happened."""

from __future__ import annotations

import io
import os
import signal

import numpy as np
import pytest

from hapi_compute.data.errors import DatasetError, LabelMissing
from hapi_compute.data.packing import build_tar
from hapi_compute.store.errors import Overwritten
from hapi_compute.store.names import SwiftUrl
from swift_hapi.protocol.errors import BadTransform, ModelMismatch, UndecodableSample
from tests.functional.support import wait_until
from tests.functional.training import (
    AtStep,
    assert_same_losses,
    client_of,
    config,
    digit_folders,
    put,
    run,
)

SLOW = {"window": 1, "prefetch": 1, "concurrency": 1, "epochs": 2}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return digit_folders(tmp_path_factory.mktemp("digits"), 200, 48)


@pytest.fixture
def dataset(cluster, digits, container) -> str:
    url = f"swift://{container}/d"
    put(client_of(cluster), digits, url, shard_samples=6)
    return url


@pytest.fixture
def engine(cluster):
    """Kills the cluster's engine; gives it back alive."""

    def kill():
        os.kill(cluster.pids["engine"], signal.SIGKILL)

    before = cluster.pids["engine"]
    yield kill
    client = client_of(cluster, attempts=1)
    wait_until(
        lambda: cluster.pids.get("engine") not in (None, before) and "swift_hapi" in client.info(),
        "the engine to be started again",
    )


@pytest.mark.parametrize(
    ("policy", "fallback"),
    [({"attempts": 1}, True), ({"attempts": 60, "base": 0.5, "cap": 0.5}, False)],
    ids=["raw at once", "patient"],
)
def test_engine_killed_in_the_middle(cluster, dataset, engine, policy, fallback):
    reference = run(client_of(cluster), dataset, split="raw", **SLOW)
    client = client_of(cluster, **policy)
    report = run(client, dataset, AtStep(2, engine), split="add_2", **SLOW)
    assert_same_losses(report, reference)
    if fallback:
        assert report.fallbacks > 0 and report.to_dict()["fallbacks"] == report.fallbacks
    else:
        assert report.fallbacks == 0 and report.counts.retries > 0


@pytest.mark.parametrize("split", ["raw", "add_4"])
def test_overwritten_shard_ends_the_run(cluster, dataset, split):
    client = client_of(cluster)
    url = SwiftUrl.parse(dataset)
    last = url.name("shard-000007.tar")

    def overwrite():
        for number in range(8):
            name = url.name(f"shard-{number:06d}.tar")
            client.put(url.container, name, build_tar([("x", "jpg", 0, b"x")]), content_type="x")

    with pytest.raises(Overwritten, match=f"{url.container}/d/shard-00000.*overwritten"):
        run(client, dataset, AtStep(1, overwrite), split=split, **SLOW)
    # And the next run sees at the start that the manifest is of other objects.
    with pytest.raises(DatasetError, match="repeat 'hapi put'"):
        run(client, dataset, split=split, **SLOW)
    assert client.head(url.container, last) is not None


@pytest.mark.parametrize("split", ["raw", "add_4"])
def test_bad_samples_are_named(cluster, container, digits, split):
    client = client_of(cluster)
    good = next(digits.rglob("*.jpg")).read_bytes()
    url = f"swift://{container}/d"

    def shard(samples):
        client.put(container, "d/a b.tar", build_tar(samples), content_type="application/x-tar")

    shard([("ok", "jpg", 0, good), ("torn", "jpg", 1, good[:300])])
    with pytest.raises(UndecodableSample, match=r"d/a(%20| )b\.tar.*torn"):
        run(client, url, split=split, num_classes=2)
    shard([("ok", "jpg", 0, good), ("far", "jpg", 5, good)])
    with pytest.raises(LabelMissing, match="d/a b.tar.*'far' has label 5"):
        run(client, url, split=split, num_classes=2)


def test_foreign_tars(cluster, container, digits):
    client = client_of(cluster)
    images = [path.read_bytes() for path in sorted(digits.rglob("*.jpg"))[:12]]
    for number in range(3):
        samples = [(f"{i:04d}", "jpg", i % 2, images[4 * number + i]) for i in range(4)]
        client.put(container, f"d/{number}.tar", build_tar(samples), content_type="x")
    url = f"swift://{container}/d"
    reports = [run(client, url, split=s, num_classes=2, batch_size=5) for s in ("raw", "add_2")]
    assert_same_losses(reports[1], reports[0])
    assert reports[0].samples == 12


def test_tensors(cluster, container):
    client = client_of(cluster)
    for number in range(2):
        samples = []
        for i in range(6):
            stream = io.BytesIO()
            values = np.random.default_rng([number, i]).standard_normal((3, 48, 48))
            np.save(stream, values.astype(np.float32))
            samples.append((f"{i:04d}", "npy", i % 2, stream.getvalue()))
        client.put(container, f"d/{number}.tar", build_tar(samples), content_type="x")
    url = f"swift://{container}/d"
    options = {"num_classes": 2, "transform": "none", "batch_size": 5}
    reports = [run(client, url, split=s, **options) for s in ("raw", "add_2")]
    assert_same_losses(reports[1], reports[0])
    assert reports[1].fallbacks == 0
    with pytest.raises(BadTransform, match="tensor"):
        run(client, url, split="add_2", num_classes=2)


def test_spoiled_model_file_is_an_error(cluster, dataset):
    from hapi_compute.models import load_model
    from swift_hapi.graph.split import build_transfer

    client = client_of(cluster)
    wanted = config(dataset, weights="random:99")
    module = load_model(wanted.model, wanted.weights).module
    extractor, _ = build_transfer(module, wanted.freeze_at, 10, wanted.seed, (3, 64, 64))
    name = f"{extractor.digest.removeprefix('sha256:')}.safetensors"
    client.put_container("hapi-models")
    client.put("hapi-models", name, b"garbage", content_type="x")
    with pytest.raises(ModelMismatch):
        run(client, dataset, split="add_4", weights="random:99")
