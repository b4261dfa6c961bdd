"""``hapi put`` against a real Swift."""

from __future__ import annotations

import json

import pytest

from hapi_compute import FeaturesOf, SwiftDataset
from hapi_compute.cli.main import main
from hapi_compute.data.errors import BadSource
from hapi_compute.data.listing import pin
from hapi_compute.data.manifest import Manifest
from hapi_compute.data.names import read_names
from hapi_compute.data.uploader import PutConfig, upload
from hapi_compute.models import load_model
from hapi_compute.store.names import SwiftUrl
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.limits import Limits
from swift_hapi.samples.shard import read_shard
from tests.functional.training import client_of, digit_folders, put


@pytest.fixture
def store(cluster):
    return client_of(cluster)


@pytest.fixture
def digits(tmp_path):
    return digit_folders(tmp_path / "digits", 0, 34)


def samples_in(store, container, prefix):
    dataset = pin(store, SwiftUrl(container, prefix))
    for shard in dataset.shards:
        body = store.get(container, shard.name, if_match=shard.etag).body
        yield from ((dataset, s) for s in read_shard(body, shard.name, Limits()).samples)


def test_everything_arrives_as_it_was(store, container, digits):
    report = put(store, digits, f"swift://{container}/a b?")
    assert (report.samples, report.shards, report.uploaded) == (34, 4, 4)
    assert report.classes == tuple("0123456789")
    expected = {path.read_bytes(): path.parent.name for path in digits.rglob("*.jpg")}
    found = {bytes(s.data): d.classes[s.label] for d, s in samples_in(store, container, "a b?")}
    assert found == expected
    keys = [s.key for _, s in samples_in(store, container, "a b?")]
    assert len(set(keys)) == 34


def test_second_time_sends_nothing(store, container, digits):
    url = f"swift://{container}/d"
    put(store, digits, url)
    before = store.counters.snapshot()
    report = put(store, digits, url)
    assert (report.uploaded, report.bytes_uploaded) == (0, 0)
    assert (store.counters.snapshot() - before).bytes_sent == 0


def test_broken_off_upload_goes_on(store, container, digits):
    url = SwiftUrl(container, "d")
    put(store, digits, str(url))
    for name in ("shard-000002.tar", "hapi-dataset.json"):
        store.delete(container, url.name(name))
    report = put(store, digits, str(url))
    assert report.uploaded == 1
    assert len(pin(store, url).shards) == 4


def test_order_follows_the_seed_and_classes_are_mixed(store, container, digits):
    for prefix, seed in (("a", 0), ("b", 0), ("c", 1)):
        put(store, digits, f"swift://{container}/{prefix}", seed=seed)
    etags = [[s.etag for s in pin(store, SwiftUrl(container, p)).shards] for p in "abc"]
    assert etags[0] == etags[1] != etags[2]
    labels = [s.label for _, s in samples_in(store, container, "a")]
    assert labels != sorted(labels)


def test_smaller_upload_leaves_strays_that_nobody_reads(store, container, digits):
    url = f"swift://{container}/d"
    put(store, digits, url)
    report = put(store, digits, url, shard_samples=20)
    assert (report.shards, report.stale, report.left) == (2, 2, 2)
    dataset = pin(store, SwiftUrl.parse(url))
    assert (len(dataset.shards), dataset.samples, dataset.stray) == (2, 34, 2)
    store.put(container, "d/other.tar", b"x", content_type="application/x-tar")
    report = put(store, digits, url, shard_samples=20, prune=True)
    assert (report.uploaded, report.pruned, report.stale) == (0, 2, 1)
    assert [o.name for o in store.list(container)] == [
        "d/hapi-dataset.json", "d/hapi-names.json", "d/other.tar", "d/shard-000000.tar",
        "d/shard-000001.tar",
    ]  # fmt: skip


def test_any_name_comes_back(cluster, store, container, digits):
    """Through tars that Swift keeps, listings, and keys that an engine sends."""
    images = sorted(digits.rglob("*.jpg"))
    names = ["ü 😀 %41/a b", "ü 😀 %41/a.b", "ü 😀 %41/new\nline", f"x/{'z' * 240}", "x/-dash"]
    for image, name in zip(images, names, strict=False):
        target = digits.parent / "named" / f"{name}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(image.read_bytes())
    report = put(store, digits.parent / "named", f"swift://{container}/d", shard_samples=2)
    dataset = pin(store, SwiftUrl(container, "d"), labels="path")
    assert dataset.classes == ("x", "ü 😀 %41")
    name_of = read_names(store, dataset)
    assert {name_of(key) for key in report.names} == {f"{name}.jpg" for name in names}
    model = load_model("squeezenet1_1", "random:1").module
    features = FeaturesOf(make_extractor(model, "features.2", (3, 64, 64)), required=True)
    data = SwiftDataset(
        f"swift://{container}/d", store, batch_size=5, features=features, labels="path",
        transform="resize=64x64, mean=(0.5), std=(0.25)",
    )  # fmt: skip
    (batch,) = data
    found = dict(zip(batch["key"], batch["label"].tolist(), strict=True))
    assert found == {key: int(key.startswith("ü")) for key in report.names}


def test_bad_files_are_named_before_anything_is_sent(store, container, digits):
    (digits / "3" / "broken.jpg").write_bytes(next(digits.rglob("*.jpg")).read_bytes()[:300])
    (digits / "4" / "notes.txt").write_bytes(b"x")
    with pytest.raises(BadSource, match="(?s)1 files.*broken.jpg"):
        put(store, digits, f"swift://{container}/d")
    assert list(store.list(container)) == []
    report = put(store, digits, f"swift://{container}/d", skip_bad=True)
    assert report.samples == 34 and len(report.skipped) == 1
    assert report.ignored == ("4/notes.txt",)


def test_shards_are_packed_by_bytes_too(store, container, digits):
    report = put(store, digits, f"swift://{container}/d", shard_bytes=1 << 16, shard_samples=128)
    assert report.shards > 1
    assert all(s.bytes <= 1 << 16 for s in pin(store, SwiftUrl(container, "d")).shards)


def test_tars_are_repacked(store, container, digits, tmp_path):
    put(store, digits, f"swift://{container}/d")
    tars = tmp_path / "tars"
    tars.mkdir()
    for shard in pin(store, SwiftUrl(container, "d")).shards:
        body = store.get(container, shard.name).body
        (tars / shard.name.rpartition("/")[2]).write_bytes(body)
    report = put(store, tars, f"swift://{container}/again", shard_samples=7)
    assert (report.samples, report.shards) == (34, 5)
    first, again = (
        sorted((bytes(s.data), s.label) for _, s in samples_in(store, container, prefix))
        for prefix in ("d", "again")
    )
    assert first == again


def test_objects_are_packed_into_shards(store, account, container, digits):
    for path in digits.rglob("*.jpg"):
        name = f"in/{path.parent.name}/{path.name} %?#\n.jpg"
        store.put(container, name, path.read_bytes(), content_type="image/jpeg")
    source, target = f"swift://{container}/in", f"swift://{container}/out"
    report = put(store, source, target)
    assert (report.samples, report.shards, report.uploaded) == (34, 4, 4)
    expected = {path.read_bytes(): path.parent.name for path in digits.rglob("*.jpg")}
    found = {bytes(s.data): d.classes[s.label] for d, s in samples_in(store, container, "out")}
    assert found == expected
    before = store.counters.snapshot()
    again = put(store, source, target)
    brought = store.counters.snapshot() - before
    assert again.uploaded == 0 and brought.bytes_sent == 0
    assert brought.bytes_received < sum(map(len, expected)) / 2


def test_from_somebody_elses_account(cluster, store, container, digits):
    put(store, digits, f"swift://{container}/d")
    for path in digits.rglob("*.jpg"):
        name = f"in/{path.parent.name}/{path.name}"
        store.put(container, name, path.read_bytes(), content_type="image/jpeg")
    store.post(container, None, {"X-Container-Read": "test2:tester2,.rlistings"})
    other = client_of(cluster, "test2:tester2")
    config = PutConfig(f"swift://{container}/in", SwiftUrl("packed", "d"), shard_samples=10)
    report = upload(config, other, origin=other.of_account(store.storage_url))
    assert report.samples == 34
    assert pin(other, SwiftUrl("packed", "d")).samples == 34


def test_command(cluster, store, container, digits, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ST_AUTH", cluster.auth_url)
    monkeypatch.setenv("ST_USER", cluster.user)
    monkeypatch.setenv("ST_KEY", cluster.key)
    target = tmp_path / "report.json"
    argv = ["put", str(digits), f"swift://{container}/d", "--shard-bytes", "1MB"]
    assert main([*argv, "--json", str(target)]) == 0
    assert "34 samples, 10 classes, 7 shards" in capsys.readouterr().out
    assert json.loads(target.read_text())["uploaded"] == 7
    manifest = store.get(container, "d/hapi-dataset.json").body
    assert Manifest.from_json(manifest, "x").samples == 34
    monkeypatch.setenv("ST_KEY", "wrong")
    assert main(argv) == 1
    assert "refused" in capsys.readouterr().err
