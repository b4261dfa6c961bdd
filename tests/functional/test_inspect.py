"""``hapi ls``, ``verify`` and ``models ls|rm`` against a real Swift."""

from __future__ import annotations

import pytest

from hapi_compute.data.packing import build_tar
from hapi_compute.models import load_model
from hapi_compute.train.upload_model import ensure_uploaded
from swift_hapi.graph.split import make_extractor
from tests.functional.commands import hapi, report_of
from tests.functional.training import client_of, digit_folders, put


@pytest.fixture
def store(cluster):
    return client_of(cluster)


def test_info(cluster, tmp_path, monkeypatch, capsys):
    report = report_of(cluster, monkeypatch, tmp_path, "info")
    assert report["pushdown"] is True and "float32" in report["swift_hapi"]["dtypes"]
    assert "push-down by swift_hapi" in capsys.readouterr().out


def test_ls_and_verify(cluster, store, container, tmp_path, monkeypatch, capsys):
    digits = digit_folders(tmp_path / "digits", 0, 24)
    put(store, digits, f"swift://{container}/a b\n%?#//\U0001f600")
    report = report_of(cluster, monkeypatch, tmp_path, "ls")
    (found,) = [each for each in report["containers"] if each["name"] == container]
    report = report_of(cluster, monkeypatch, tmp_path, "ls", container)
    # Right away, though the account has heard of nothing yet.
    assert (found["objects"], found["bytes"]) == (report["count"], report["bytes"])
    assert report["count"] == 5
    (dataset,) = report["datasets"]
    assert dataset["samples"] == 24 and sum(dataset["classes"].values()) == 24
    url = dataset["url"]
    assert url == f"swift://{container}/a b\n%?#//\U0001f600"
    capsys.readouterr()
    report = report_of(cluster, monkeypatch, tmp_path, "verify", url)
    assert report["good"] and report["samples"] == 24 and report["digest"] == dataset["digest"]
    name = report_of(cluster, monkeypatch, tmp_path, "ls", container)["objects"][-1]["name"]
    body = store.get(container, name).body
    store.put(container, name, body[:-512], content_type="application/x-tar")
    assert hapi(cluster, monkeypatch, "verify", url) == 1
    assert "is not the object in the manifest" in capsys.readouterr().err


def test_verify_names_a_sample_without_a_label(
    cluster, store, container, tmp_path, monkeypatch, capsys
):
    image = next(digit_folders(tmp_path, 0, 1).rglob("*.jpg")).read_bytes()
    tar = build_tar([("x/1", "jpg", 0, image), ("x/2", "jpg", None, image)])
    store.put(container, "s.tar", tar, content_type="application/x-tar")
    assert hapi(cluster, monkeypatch, "verify", container) == 1
    assert f"{container}/s.tar: sample 'x/2' has no label" in capsys.readouterr().err


def test_models(cluster, tmp_path, monkeypatch):
    other = client_of(cluster, "test2:tester2")
    extractor = make_extractor(load_model("squeezenet1_1", "random:5").module, "features.2")
    ensure_uploaded(extractor, other)
    auth = ["--user", "test2:tester2", "--key", "testing2"]
    report = report_of(cluster, monkeypatch, tmp_path, "models", "ls", "-l", *auth)
    (found,) = [m for m in report["models"] if m["model"] == extractor.digest]
    assert found["freeze_at"] == extractor.cuts[-1].name and found["input"] == [3, 224, 224]
    argv = ["models", "rm", extractor.digest[:20], *auth]
    report = report_of(cluster, monkeypatch, tmp_path, *argv)
    assert report["removed"][0]["model"] == extractor.digest
    report = report_of(cluster, monkeypatch, tmp_path, "models", "ls", *auth)
    assert extractor.digest not in {m["model"] for m in report["models"]}
    assert ensure_uploaded(extractor, other)[1]
