"""``hapi predict`` and ``hapi eval`` against a real Swift, with what ``hapi train`` leaves."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision

from hapi_compute.data.listing import pin
from hapi_compute.data.packing import build_tar
from hapi_compute.infer.product import load
from hapi_compute.store.names import SwiftUrl
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import parse_transform
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import read_shard
from tests.functional.commands import hapi, report_of
from tests.functional.training import client_of, digit_folders, put, run

TRAIN, TEST = "swift://predict/train", "swift://predict/test"
THREADS = ["--threads", "1", "--micro-batch", "8"]


@pytest.fixture(scope="module")
def store(cluster, tmp_path_factory):
    client = client_of(cluster)
    root = tmp_path_factory.mktemp("digits")
    put(client, digit_folders(root / "train", 0, 36), TRAIN)
    put(client, digit_folders(root / "test", 100, 32), TEST)
    return client


@pytest.fixture(scope="module")
def trained(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    return run(store, TRAIN, split="raw", test=TEST, out=str(out), epochs=1), out


@pytest.fixture(scope="module")
def logits(store, trained):
    """(object, key, label, logits) of the test set, from the state dict alone."""
    torch.set_num_threads(1)
    description = json.loads((trained[1] / "model.json").read_text())
    model = torchvision.models.resnet18(num_classes=description["num_classes"]).eval()
    model.load_state_dict(safetensors.torch.load_file(trained[1] / "model.safetensors"))
    spec = parse_transform(description["transform"])
    found = []
    for shard in pin(store, SwiftUrl.parse(TEST)).shards:
        samples = read_shard(store.get("predict", shard.name).body, shard.name, Limits()).samples
        images = np.stack([decode_sample(s, spec, Limits()) for s in samples])
        with torch.inference_mode():
            rows = model(torch.from_numpy(images))
        found += [(shard.name, s.key, s.label, r) for s, r in zip(samples, rows, strict=True)]
    return found


def test_the_frozen_part_is_the_one_of_the_run(trained):
    description = json.loads((trained[1] / "model.json").read_text())
    assert load(str(trained[1])).frozen.digest == description["extractor"]


def test_a_model_names_the_dataset_as_ls_does(cluster, trained, tmp_path, monkeypatch):
    description = json.loads((trained[1] / "model.json").read_text())
    (shown,) = report_of(cluster, monkeypatch, tmp_path, "ls", TRAIN)["datasets"]
    assert shown["digest"].startswith("sha256:")
    assert description["dataset"]["digest"] == shown["digest"]


@pytest.mark.parametrize(
    ("options", "split"),
    [
        # These images are smaller than any features of theirs.
        (["--split", "auto"], "raw"),
        # Pixels are fewer bytes than any features.
        (["--split", "auto", "--require-pushdown"], "input"),
        (["--split", "add_4", "--dtype", "float32"], "add_4"),
        (["--split", "raw"], "raw"),
        (["--split", "add_2"], "add_2"),
    ],
)
def test_predictions_are_those_of_the_plain_model(
    cluster, trained, logits, tmp_path, monkeypatch, options, split
):
    out = tmp_path / "p.jsonl"
    argv = ["predict", TEST, "--run", trained[1], *options, "-o", out, *THREADS]
    report = report_of(cluster, monkeypatch, tmp_path, *argv)
    assert report["samples"] == 32 and report["fallbacks"] == 0
    assert report["split"] == split
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(r["object"], r["key"]) for r in rows] == [(o, k) for o, k, _, _ in logits]
    for row, (_, _, _, expected) in zip(rows, logits, strict=True):
        scores = expected.softmax(0)
        assert row["score"] == pytest.approx(float(scores.max()), abs=1e-4)
        assert row["label"] == row["top"][0]["label"] and len(row["top"]) == 5
        assert float(scores[int(row["label"])]) == pytest.approx(row["score"], abs=1e-4)


def test_csv_on_stdout(cluster, trained, logits, monkeypatch, capsys):
    argv = ["predict", TEST, "--run", trained[1], "--top", "2", "--format", "csv", *THREADS]
    assert hapi(cluster, monkeypatch, *argv) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert list(rows[0]) == ["object", "key", "name", "label", "score", "label_2", "score_2"]
    assert [row["key"] for row in rows] == [key for _, key, _, _ in logits]
    assert all(row["name"] == f"{row['key']}.jpg" for row in rows)
    assert " " in rows[0]["name"]


@pytest.mark.parametrize("split", ["raw", "maxpool"])
def test_accuracy_is_that_of_training(
    cluster, trained, logits, tmp_path, monkeypatch, capsys, split
):
    argv = ["eval", TEST, "--run", trained[1], "--split", split, *THREADS]
    report = report_of(cluster, monkeypatch, tmp_path, *argv)
    assert report["samples"] == 32 and report["split"] == split
    assert report["top1"] == pytest.approx(trained[0].test_accuracy)
    confusion = np.zeros((10, 10), dtype=int)
    for _, _, label, row in logits:
        confusion[label, int(row.argmax())] += 1
    assert report["confusion"] == confusion.tolist()
    five = np.mean([label in row.topk(5).indices for _, _, label, row in logits])
    assert report["top5"] == pytest.approx(five)
    loss = np.mean([-float(row.log_softmax(0)[label]) for _, _, label, row in logits])
    assert report["loss"] == pytest.approx(loss, rel=1e-4)
    assert "32 samples: top-1" in capsys.readouterr().out


def test_labels_from_a_table(cluster, store, container, trained, tmp_path, monkeypatch, capsys):
    shard = pin(store, SwiftUrl.parse(TEST)).shards[0]
    samples = read_shard(store.get("predict", shard.name).body, shard.name, Limits()).samples
    bare = [(s.key, "jpg", None, bytes(s.data)) for s in samples]
    store.put(container, "d/x.tar", build_tar(bare), content_type="application/x-tar")
    argv = ["eval", f"{container}/d", "--run", trained[1], *THREADS]
    assert hapi(cluster, monkeypatch, *argv) == 1
    assert f"sample {samples[0].key!r} has no label" in capsys.readouterr().err
    table = tmp_path / "labels.jsonl"
    table.write_text("".join(json.dumps({"key": s.key, "label": s.label}) + "\n" for s in samples))
    report = report_of(cluster, monkeypatch, tmp_path, *argv, "--labels", table)
    assert report["samples"] == len(samples)
    # Labels are no business of a prediction.
    out = tmp_path / "p.csv"
    assert hapi(cluster, monkeypatch, "predict", *argv[1:], "--out", out) == 0
    assert len(out.read_text().splitlines()) == len(samples) + 1


def test_what_is_wrong_is_said(
    cluster, store, container, trained, tmp_path, monkeypatch, capsys
):
    assert hapi(cluster, monkeypatch, "eval", TEST, "--run", tmp_path) == 2
    assert "holds no model" in capsys.readouterr().err
    (tmp_path / "model.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert hapi(cluster, monkeypatch, "eval", TEST, "--run", tmp_path) == 1
    assert "no description of a model" in capsys.readouterr().err
    argv = ["eval", TEST, "--run", trained[1], *THREADS]
    assert hapi(cluster, monkeypatch, *argv, "--split", "fc") == 2
    assert "--split='fc'" in capsys.readouterr().err
    put(store, digit_folders(tmp_path / "other" / "x", 0, 8), f"swift://{container}/d")
    (tmp_path / "other" / "x" / "0").rename(tmp_path / "other" / "x" / "zero")
    put(store, tmp_path / "other" / "x", f"swift://{container}/d")
    assert hapi(cluster, monkeypatch, "eval", f"{container}/d", *argv[2:]) == 1
    assert "has a class 'zero'" in capsys.readouterr().err
