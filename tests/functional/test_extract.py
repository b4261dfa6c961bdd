"""``hapi extract`` against a real Swift."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from hapi_compute.data.listing import pin
from hapi_compute.infer.features_file import read_keys
from hapi_compute.models import load_model
from hapi_compute.store.names import SwiftUrl
from swift_hapi.cluster import ClusterConfig, EmbeddedCluster
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import parse_transform
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import read_shard
from tests.functional.commands import hapi, report_of, start
from tests.functional.support import wait_until
from tests.functional.training import client_of, digit_folders, put

DATA = "swift://features/a b"
TRANSFORM = "resize=64x64, mean=(0.5), std=(0.25)"
MODEL = ["--model", "resnet18", "--weights", "random:7", "--cut", "layer2"]
OPTIONS = [*MODEL, "--transform", TRANSFORM, "--threads", "1", "--micro-batch", "4"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return digit_folders(tmp_path_factory.mktemp("digits"), 0, 46)


@pytest.fixture(scope="module")
def store(cluster, digits):
    client = client_of(cluster)
    put(client, digits, DATA, shard_samples=4)
    return client


@pytest.fixture(scope="module")
def expected(store):
    """Keys, labels and features, all of it computed here."""
    torch.set_num_threads(1)
    extractor = make_extractor(load_model("resnet18", "random:7").module, "layer2", (3, 64, 64))
    spec = parse_transform(TRANSFORM)
    head = Head(extractor, extractor.cuts[-1])
    keys, labels, rows = [], [], []
    for shard in pin(store, SwiftUrl.parse(DATA)).shards:
        body = store.get("features", shard.name).body
        samples = read_shard(body, shard.name, Limits()).samples
        images = np.stack([decode_sample(s, spec, Limits()) for s in samples])
        keys += [s.key for s in samples]
        labels += [s.label for s in samples]
        rows.append(head(torch.from_numpy(images)).numpy())
    return keys, labels, np.concatenate(rows)


def close(a, b):
    assert a.shape == b.shape
    assert np.abs(a - b).max() <= 1e-5 * np.abs(b).max()


def test_npy(cluster, store, expected, tmp_path, monkeypatch):
    keys, labels, rows = expected
    out = tmp_path / "f.npy"
    argv = ["extract", "features/a b", *OPTIONS, "--out", out, "--require-pushdown"]
    report = report_of(cluster, monkeypatch, tmp_path, *argv)
    assert (report["samples"], report["resumed"], report["fallbacks"]) == (46, 0, 0)
    assert report["shape"] == [46, 128, 8, 8] and report["shards"] == 12
    close(np.load(out), rows)
    document = json.loads((tmp_path / "f.json").read_text())
    assert (document["keys"], document["labels"]) == (keys, labels)
    assert document["classes"] == list("0123456789") and document["transform"] == TRANSFORM
    shown = report_of(cluster, monkeypatch, tmp_path, "ls", "features/a b")["datasets"][0]
    assert document["dataset"]["digest"] == shown["digest"]
    assert document["dataset"]["url"] == shown["url"] == DATA
    assert document["names"] == [f"{key}.jpg" for key in keys]
    # Once more: nothing is computed.
    again = report_of(cluster, monkeypatch, tmp_path, *argv)
    assert again["resumed"] == 46
    assert again["bytes_received"] < report["bytes_received"] / 10


def test_safetensors_and_zstd(cluster, store, expected, tmp_path, monkeypatch):
    keys, labels, rows = expected
    out = tmp_path / "f.safetensors"
    argv = ["extract", DATA, *OPTIONS, "--out", out, "--encoding", "zstd"]
    assert hapi(cluster, monkeypatch, *argv) == 0
    tensors = load_file(out)
    close(tensors["features"], rows)
    assert tensors["label"].tolist() == labels and read_keys(tensors) == keys


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_killed_and_run_again(cluster, store, tmp_path, monkeypatch, suffix):
    argv = ["extract", DATA, *OPTIONS, "--concurrency", "1", "--prefetch", "1"]
    whole, broken = tmp_path / f"whole{suffix}", tmp_path / f"broken{suffix}"
    first = report_of(cluster, monkeypatch, tmp_path, *argv, "--out", whole)
    journal = tmp_path / f"{broken.name}.journal"
    process = start(cluster, *argv, "--out", broken)

    def some() -> bool:
        assert process.poll() is None, process.communicate()
        return journal.exists() and journal.read_bytes().count(b"\n") > 3

    wait_until(some, "three shards to be written")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not broken.exists()
    report = report_of(cluster, monkeypatch, tmp_path, *argv, "--out", broken)
    assert 12 <= report["resumed"] < 46 and report["samples"] == 46
    part = 1 - report["resumed"] / 46
    assert report["bytes_received"] < first["bytes_received"] * (part + 0.1)
    assert broken.read_bytes() == whole.read_bytes()


def test_an_engine_that_is_killed_changes_nothing(cluster, store, expected, tmp_path):
    out = tmp_path / "f.npy"
    process = start(
        cluster, "extract", DATA, *OPTIONS, "--concurrency", "1", "--prefetch", "1", "--out", out
    )
    journal, before = tmp_path / "f.npy.journal", cluster.pids["engine"]

    def some() -> bool:
        assert process.poll() is None, process.communicate()
        return journal.exists() and journal.read_bytes().count(b"\n") > 2

    wait_until(some, "two shards to be written")
    os.kill(before, signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    close(np.load(out), expected[2])
    wait_until(
        lambda: cluster.pids.get("engine") not in (None, before) and "swift_hapi" in store.info(),
        "the engine to be started again",
    )


def test_without_a_filter(store, digits, expected, tmp_path, monkeypatch, capsys):
    with EmbeddedCluster(ClusterConfig(dir=tmp_path / "plain", hapi=False)) as plain:
        put(client_of(plain), digits, DATA, shard_samples=4)
        argv = ["extract", DATA, *OPTIONS, "--out", tmp_path / "f.npy"]
        assert hapi(plain, monkeypatch, *argv, "--require-pushdown") == 1
        assert "no hapi filter" in capsys.readouterr().err
        report = report_of(plain, monkeypatch, tmp_path, *argv)
        assert report["fallbacks"] == report["shards"] == 12
        close(np.load(tmp_path / "f.npy"), expected[2])


def test_somebody_elses_container(cluster, store, expected, tmp_path, monkeypatch):
    """Data by its owner's leave; the extractor file lies in one's own account."""
    store.post("features", None, {"X-Container-Read": "test2:tester2,.rlistings"})
    out = tmp_path / "f.npy"
    auth = ["--user", "test2:tester2", "--key", "testing2"]
    argv = ["extract", DATA, *OPTIONS, "--out", out, "--require-pushdown", *auth]
    argv += ["--storage-url", store.storage_url]
    assert report_of(cluster, monkeypatch, tmp_path, *argv)["fallbacks"] == 0
    close(np.load(out), expected[2])
    extractor = json.loads((tmp_path / "f.json").read_text())["extractor"]
    listed = report_of(cluster, monkeypatch, tmp_path, "models", "ls", *auth)
    assert extractor in {model["model"] for model in listed["models"]}


def test_single_images_with_a_table_and_without_labels(
    cluster, store, container, digits, tmp_path, monkeypatch, capsys
):
    images = sorted(digits.rglob("*.jpg"))[:6]
    for number, path in enumerate(images):
        store.put(container, f"in/{number} %?#.jpg", path.read_bytes(), content_type="image/jpeg")
    argv = ["extract", f"{container}/in", *OPTIONS, "--out", tmp_path / "f.npy"]
    assert report_of(cluster, monkeypatch, tmp_path, *argv)["unlabelled"] == 6
    rows = "".join(f"{n} %?#.jpg,{path.parent.name}\n" for n, path in enumerate(images))
    store.put(container, "labels.csv", rows.encode(), content_type="text/csv")
    argv += ["--labels", f"swift://{container}/labels.csv"]
    assert hapi(cluster, monkeypatch, *argv) == 0
    document = json.loads((tmp_path / "f.json").read_text())
    assert document["labels"] == [int(path.parent.name) for path in images]
    store.put(container, "labels.csv", rows[:-14].encode() + b"x,0\n", content_type="text/csv")
    assert hapi(cluster, monkeypatch, *argv) == 1
    assert "in/5 %?#.jpg' is not in swift" in capsys.readouterr().err


def test_what_is_wrong_is_said(cluster, store, tmp_path, monkeypatch, capsys):
    for more, why in (
        (["--out", "f.txt"], "want a name that ends in .npy or .safetensors"),
        (["--out", "f.npy", "--cut", "nowhere"], "cut='nowhere'"),
        (["--out", "f.npy", "--micro-batch", "0"], "--micro-batch=0: want 1 to 4096"),
        (["--out", "f.npy", "--transform", "resize=x"], "--transform='resize=x'"),
    ):
        assert hapi(cluster, monkeypatch, "extract", DATA, *OPTIONS, *more) == 2
        assert why in capsys.readouterr().err
    argv = ["extract", "nowhere", *OPTIONS, "--out", tmp_path / "f.npy"]
    assert hapi(cluster, monkeypatch, *argv) == 1
    assert "there is no container 'nowhere'" in capsys.readouterr().err
