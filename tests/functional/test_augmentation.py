"""Random colours over a real Swift: drawn for the sample, wherever and by whom it is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch.utils.data import DataLoader

from hapi_compute import FeaturesOf, SwiftDataset
from hapi_compute.models import load_model
from hapi_compute.train.errors import CheckpointMismatch
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import build_transfer
from swift_hapi.protocol.transform import parse_transform
from tests.functional.training import assert_same_losses, client_of, put, run

URL, TEST = "swift://colours/train", "swift://colours/test"
PLAIN = "resize=64x64, mean=(0.5), std=(0.25)"
STEPS = "hflip=0.5, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, grayscale=0.2"


def patches(root: Path, first: int, count: int) -> Path:
    """Pieces of two photos, a folder for each of them."""
    for name in ("flower", "china"):
        photo = Image.fromarray(load_sample_image(f"{name}.jpg"))
        (root / name).mkdir(parents=True)
        for number in range(first, first + count):
            left, top = 70 * (number % 8), 90 * (number // 8)
            piece = photo.crop((left, top, left + 80, top + 80))
            piece.save(root / name / f"{number}.jpg", quality=90)
    return root


@pytest.fixture(scope="module")
def store(cluster, tmp_path_factory):
    client, root = client_of(cluster), tmp_path_factory.mktemp("patches")
    put(client, patches(root / "train", 0, 18), URL)
    put(client, patches(root / "test", 18, 6), TEST)
    return client


@pytest.fixture(scope="module")
def raw(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("raw")
    report = run(
        store, URL, split="raw", transform=PLAIN, augment=STEPS, test=TEST, val_split=0.3,
        out=str(out),
    )  # fmt: skip
    return report, out


@pytest.mark.parametrize(
    "how",
    [
        {"split": "input"},
        {"split": "add_2", "concurrency": 4, "prefetch": 1, "micro_batch": 3},
        {"split": "raw", "decode_threads": 3, "concurrency": 1},
    ],
)
def test_the_losses_are_the_same_on_either_tier(store, raw, how):
    pushed = how["split"] != "raw"
    report = run(
        store, URL, transform=PLAIN, augment=STEPS, test=TEST, val_split=0.3,
        require_pushdown=pushed, **how,
    )  # fmt: skip
    assert_same_losses(report, raw[0])
    assert report.test_accuracy == raw[0].test_accuracy
    assert [r.val_accuracy for r in report.epochs] == [r.val_accuracy for r in raw[0].epochs]
    assert (report.timings.get("decode", 0) == 0) == pushed and report.fallbacks == 0


def test_colours_change_training_and_nothing_else(store, raw):
    """A rate of nothing leaves the model alone, so that validation sees the pictures only."""
    still = {"lr": 0.0, "val_split": 0.3, "test": TEST, "split": "raw", "epochs": 1}
    # Statistics of the trained part's normalisation would learn from what they see.
    still["freeze_at"] = "avgpool"
    plain = run(store, URL, transform=PLAIN, **still)
    coloured = run(store, URL, transform=PLAIN, augment=STEPS, **still)
    assert coloured.step_losses != pytest.approx(plain.step_losses, rel=1e-3)
    assert coloured.test.to_dict() == plain.test.to_dict()
    assert [e.val_loss for e in coloured.epochs] == [e.val_loss for e in plain.epochs]


def test_the_product_knows_how_it_was_trained_and_how_to_look(raw):
    document = json.loads((raw[1] / "model.json").read_text())
    assert document["transform"] == str(parse_transform(PLAIN))
    used = parse_transform(document["options"]["transform"])
    assert used == parse_transform(f"{PLAIN}, {STEPS}, seed=3, epoch=0")


def test_a_random_crop_takes_the_place_of_the_centre(store):
    steps = "rrc=64, scale=(0.3 1), hue=0.2"
    options = {"transform": f"resize=72, crop=64, {PLAIN[14:]}", "augment": steps, "epochs": 1}
    raw = run(store, URL, split="raw", **options)
    split = run(store, URL, split="maxpool", require_pushdown=True, **options)
    assert_same_losses(split, raw)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ("hue=0.6", r"augment='hue=0.6': hue: the factors are from -0.6 to 0.6; want -0.5 <= lo"),
        ("mean=(0.5)", "mean: augments nothing; what does is rrc, hflip, brightness"),
    ],
)
def test_what_is_wrong_with_it_is_said(store, steps, why):
    with pytest.raises(ValueError, match=why):
        run(store, URL, split="raw", transform=PLAIN, augment=steps)


def test_resuming_needs_the_same_steps(store, tmp_path):
    options = {"split": "raw", "transform": PLAIN, "out": str(tmp_path)}
    run(store, URL, augment="hue=0.1", epochs=1, **options)
    with pytest.raises(CheckpointMismatch, match="another transform"):
        run(store, URL, augment="hue=0.2", epochs=2, resume=True, **options)
    report = run(store, URL, augment="hue=(-0.1 0.1)", epochs=2, resume=True, **options)
    assert len(report.epochs) == 2


def batches(data: SwiftDataset, workers: int) -> list[dict]:
    data.set_epoch(1)
    return list(DataLoader(data, batch_size=None, num_workers=workers))


def test_any_number_of_workers_and_ranks_sees_the_same_colours(store):
    options = {"batch_size": 8, "transform": f"{PLAIN}, {STEPS}", "seed": 5}
    alone = batches(SwiftDataset(URL, store, **options), 0)
    plain = batches(SwiftDataset(URL, store, **options | {"transform": PLAIN}), 0)
    assert [b["key"] for b in plain] == [b["key"] for b in alone]
    assert not torch.equal(plain[0]["data"], alone[0]["data"])
    for workers, ranks in ((1, 1), (2, 1), (2, 2)):
        found = [
            batches(SwiftDataset(URL, store, rank=rank, ranks=ranks, **options), workers)
            for rank in range(ranks)
        ]
        for step, parts in enumerate(zip(*found, strict=True)):
            assert torch.equal(torch.cat([p["data"] for p in parts]), alone[step]["data"])
    extractor, _ = build_transfer(
        load_model("resnet18", "random:5").module, "layer1", 2, 0, (3, 64, 64)
    )
    features = FeaturesOf(extractor, required=True)
    head = Head(extractor, extractor.cuts[-1])
    for batch, ours in zip(
        batches(SwiftDataset(URL, store, features=features, **options), 0), alone, strict=True
    ):
        assert batch["key"] == ours["key"]
        torch.testing.assert_close(batch["data"], head(ours["data"]), rtol=1e-4, atol=1e-4)
