"""Training over a real Swift: the same run wherever the head is computed."""

from __future__ import annotations

import json

import pytest
import safetensors.torch
import torch
import torchvision

from hapi_compute.cli.main import main
from hapi_compute.plan.choice import Chooser, Decision
from hapi_compute.store.errors import PushdownUnavailable
from hapi_compute.train import pilot, planning
from swift_hapi.cluster import ClusterConfig, EmbeddedCluster
from tests.functional.training import (
    assert_same_losses,
    client_of,
    config,
    digit_folders,
    put,
    run,
)

TRAIN, TEST = "swift://digits/train set", "swift://digits/test"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("digits")
    return digit_folders(root / "train", 0, 48), digit_folders(root / "test", 100, 24)


@pytest.fixture(scope="module")
def store(cluster, folders):
    client = client_of(cluster)
    put(client, folders[0], TRAIN)
    put(client, folders[1], TEST)
    return client


@pytest.fixture(scope="module")
def reference(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("raw")
    return run(store, TRAIN, split="raw", test=TEST, out=str(out)), out


def test_raw(reference):
    report = reference[0].to_dict()
    assert (report["mode"], report["split"], report["fallbacks"]) == ("raw", "raw", 0)
    assert [epoch["steps"] for epoch in report["epochs"]] == [4, 4]
    assert len(report["step_losses"]) == 8 and report["samples"] == 48
    assert report["timings"]["decode"] > 0 and report["timings"]["frozen"] > 0
    assert report["epochs"][0]["bytes_received"] == report["epochs"][1]["bytes_received"] > 0


@pytest.mark.parametrize("cut", ["maxpool", "add_4"])
def test_split_gives_the_losses_of_raw(store, reference, cut):
    report = run(store, TRAIN, split=cut, test=TEST, require_pushdown=True)
    assert_same_losses(report, reference[0])
    assert report.test_accuracy == reference[0].test_accuracy
    assert (report.plan.split, report.fallbacks) == (cut, 0)
    assert report.storage["infer"] > 0
    assert report.timings.get("decode", 0) == 0


def test_nothing_but_speed_depends_on_how_it_is_read(store, reference):
    report = run(
        store, TRAIN, split="add_2", concurrency=4, prefetch=1, micro_batch=3, encoding="zstd"
    )
    assert_same_losses(report, reference[0])


def test_auto_measures_compares_and_gives_the_same_losses(store, reference):
    report = run(store, TRAIN, split="auto").to_dict()
    assert report["step_losses"] == pytest.approx(reference[0].step_losses, rel=1e-4)
    plan = report["plan"]
    rows = {row["name"]: row for row in plan["candidates"]}
    assert {"raw", "input", "add_4"} <= set(rows) and plan["candidate"] in rows
    for row in rows.values():
        parts = [row[f"{part}_s"] for part in ("storage", "network", "client", "flight")]
        assert row["time_s"] == max(parts) > 0 and row["first_predicted_s"] > 0
    assert rows["add_4"]["storage_s"] > rows["input"]["storage_s"] > rows["raw"]["storage_s"] == 0
    assert rows["raw"]["compute_s"] > rows["add_4"]["compute_s"]
    assert plan["runner_up"] in rows and "predicted" in plan["reason"]
    # What profiling read and computed was used: nothing was read twice.
    assert report["epochs"][0]["samples"] == 48 and plan["profile"]["samples"] >= 12
    assert sum(report["seconds_by_kind"].values()) < report["timings"]["total"]


class Wanderer(Chooser):
    """Takes another candidate whenever it is asked."""

    def decide(self):
        names = list(self.demands)
        self.current = names[(names.index(self.current) + 1) % len(names)]
        return Decision(self.current, None, "wanders")


@pytest.mark.parametrize("encoding", ["identity", "zstd"])
def test_moving_the_split_does_not_change_the_losses(store, monkeypatch, encoding):
    monkeypatch.setattr(planning, "Chooser", Wanderer)
    for name, least in (("_BATCHES", 1), ("_SHARDS", 0), ("_SECONDS", 0)):
        monkeypatch.setattr(pilot, name, least)
    # Over many steps, layers with batch statistics would amplify differences in the last bit.
    options = {"freeze_at": "avgpool", "epochs": 5, "batch_size": 6, "window": 1}
    options |= {"prefetch": 1, "concurrency": 1}
    report = run(store, TRAIN, split="auto", encoding=encoding, test=TEST, **options)
    assert len({move.split for move in report.plan.history}) >= 3
    still = run(store, TRAIN, split="raw", test=TEST, **options)
    assert_same_losses(report, still)
    assert report.test_accuracy == still.test_accuracy


def test_auto_with_a_required_pushdown_does_not_take_raw(store):
    report = run(store, TRAIN, split="auto", epochs=1, require_pushdown=True)
    assert report.plan.mode == "split" and "raw" not in report.plan.estimates


def test_random_transforms_validation_and_schedule(store):
    options = {
        "transform": "rrc=64, hflip=0.5, mean=(0.5), std=(0.25)",
        "val_split": 0.3,
        "schedule": "cosine",
    }
    raw = run(store, TRAIN, split="raw", **options)
    split = run(store, TRAIN, split="add_2", **options)
    assert_same_losses(split, raw)
    assert [r.val_accuracy for r in split.epochs] == [r.val_accuracy for r in raw.epochs]
    assert raw.epochs[0].val_accuracy is not None and raw.epochs[0].samples < 48


def test_product_is_a_plain_state_dict(reference):
    report, out = reference
    description = json.loads((out / "model.json").read_text())
    assert description["classes"] == list("0123456789")
    assert description["transform"] == "resize=64x64, mean=(0.5), std=(0.25)"
    model = torchvision.models.resnet18(num_classes=description["num_classes"])
    model.load_state_dict(safetensors.torch.load_file(out / "model.safetensors"), strict=True)
    fresh = torchvision.models.resnet18(num_classes=10)
    assert not torch.equal(model.fc.weight, fresh.fc.weight)


def test_resumed_run_is_the_uninterrupted_one(store, reference, tmp_path):
    class Stop(Exception):
        pass

    from tests.functional.training import AtStep

    def stop():
        raise Stop

    # Within the second epoch: three of its four steps are still to come.
    options = {"out": str(tmp_path), "checkpoint_seconds": 0, "split": "add_4", "test": TEST}
    with pytest.raises(Stop):
        run(store, TRAIN, AtStep(6, stop), **options)
    assert not (tmp_path / "model.safetensors").exists()
    steps = []
    report = run(store, TRAIN, AtStep(6, lambda: steps.append(6)), resume=True, **options)
    assert steps == [6]  # The step after the last checkpoint, which was written after step 5.
    assert_same_losses(report, reference[0])
    assert report.test_accuracy == reference[0].test_accuracy
    assert [r.samples for r in report.epochs] == [48, 48]
    again = run(store, TRAIN, resume=True, **options)
    assert again.step_losses == report.step_losses


def test_unknown_cut_is_named(store):
    with pytest.raises(ValueError, match=r"split='add_9': no cut is called 'add_9'; near: "):
        run(store, TRAIN, split="add_9")
    with pytest.raises(ValueError, match="freeze_at='layer9'"):
        run(store, TRAIN, freeze_at="layer9")
    with pytest.raises(ValueError, match=r"transform='crop=0': crop: '0'"):
        run(store, TRAIN, transform="crop=0")


def test_a_finished_run_is_not_overwritten_unasked(store, tmp_path):
    run(store, TRAIN, split="raw", epochs=1, out=str(tmp_path))
    before = (tmp_path / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="--resume.*--overwrite"):
        run(store, TRAIN, split="raw", epochs=1, seed=9, out=str(tmp_path))
    assert (tmp_path / "model.safetensors").read_bytes() == before
    run(store, TRAIN, split="raw", epochs=1, seed=9, out=str(tmp_path), overwrite=True)
    assert (tmp_path / "model.safetensors").read_bytes() != before


def test_folder_of_images_with_odd_names(store, reference, folders, container):
    for number, path in enumerate(sorted(folders[0].rglob("*.jpg"))[:20]):
        odd = ("%41 ?#", "ü\U0001f600", "+&=")[number % 3]
        name = f"in//{path.parent.name}/{number}{odd}.jpg"
        store.put(container, name, path.read_bytes(), content_type="image/jpeg")
    url = f"swift://{container}/in"
    raw = run(store, url, split="raw", epochs=1)
    split = run(store, url, split="add_2", epochs=1, require_pushdown=True)
    assert_same_losses(split, raw)
    assert raw.samples == 20


def test_data_in_another_account(cluster, store, reference):
    store.post("digits", None, {"X-Container-Read": "test2:tester2,.rlistings"})
    other = client_of(cluster, "test2:tester2", store.storage_url)
    report = run(other, TRAIN, split="add_4", require_pushdown=True)
    assert_same_losses(report, reference[0])
    own = other.own_account()
    assert [o.name for o in own.list("hapi-models")]


def test_store_without_filter(reference, folders, tmp_path):
    plain = ClusterConfig(dir=tmp_path / "plain", hapi=False)
    with EmbeddedCluster(plain) as cluster:
        client = client_of(cluster)
        put(client, folders[0], TRAIN)
        put(client, folders[1], TEST)
        report = run(client, TRAIN, split="add_4", test=TEST)
        assert_same_losses(report, reference[0])
        assert report.plan.mode == "raw" and "no hapi filter" in report.plan.reason
        with pytest.raises(PushdownUnavailable, match="required"):
            run(client, TRAIN, split="add_4", require_pushdown=True)
        # A cluster that hides /info: only the first answer tells.
        client.info = dict
        report = run(client, TRAIN, split="add_4", test=TEST)
        assert_same_losses(report, reference[0])
        assert report.fallbacks == 5 + 5 + 3


def test_command(cluster, store, reference, tmp_path, monkeypatch, capsys):
    for name in ("auth", "user", "key"):
        value = cluster.auth_url if name == "auth" else getattr(cluster, name)
        monkeypatch.setenv(f"ST_{name.upper()}", value)
    wanted = config(TRAIN)
    argv = ["train", TRAIN, "--split", "add_4", "--test", TEST, "--out", str(tmp_path)]
    for name in ("model", "weights", "freeze_at", "transform", "epochs", "batch_size", "window",
                 "micro_batch", "threads", "seed", "optimizer", "lr"):  # fmt: skip
        argv += [f"--{name.replace('_', '-')}", str(getattr(wanted, name))]
    assert main([*argv, "--json", str(tmp_path / "r.json")]) == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["step_losses"] == pytest.approx(reference[0].step_losses, rel=1e-4)
    shown = capsys.readouterr()
    assert "test accuracy" in shown.out and "epoch 2/2" in shown.err
    assert main([*argv, "--overwrite", "--split", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_plan_command(cluster, store, tmp_path, monkeypatch, capsys):
    for name in ("auth", "user", "key"):
        value = cluster.auth_url if name == "auth" else getattr(cluster, name)
        monkeypatch.setenv(f"ST_{name.upper()}", value)
    wanted = config(TRAIN)
    argv = ["plan", TRAIN, "--json", str(tmp_path / "p.json"), "--plot", str(tmp_path / "p.png")]
    for name in ("model", "weights", "freeze_at", "transform", "batch_size", "threads", "seed"):
        argv += [f"--{name.replace('_', '-')}", str(getattr(wanted, name))]
    assert main(argv) == 0
    document = json.loads((tmp_path / "p.json").read_text())
    names = [row["name"] for row in document["candidates"]]
    assert names[:2] == ["raw", "input"] and names[-1] == "layer3_1_relu_1"
    least = min(document["candidates"], key=lambda row: row["predicted_s"])
    assert document["candidate"] == least["name"]
    assert all(row["run_s"] > row["predicted_s"] for row in document["candidates"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in names) and f"* {least['name']}" in shown
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
