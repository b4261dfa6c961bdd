"""Features over HTTP, from the filter in a real Swift and a real engine."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
from urllib.parse import urlsplit

import numpy as np
import pytest
import requests
import safetensors.numpy
import zstandard

from swift_hapi.protocol import payload
from tests.functional.extractors import build, features, shard
from tests.functional.filter_support import (
    decoded,
    engine_requests,
    engine_status,
    get,
    hapi_headers,
    problem,
)
from tests.functional.support import wait_until
from tests.unit.samples.builders import encode, picture


@pytest.fixture(scope="module")
def model(account, tmp_path_factory):
    """An extractor in the first account's hapi-models, not known to the engine beforehand."""
    made = build(1, tmp_path_factory.mktemp("models"))
    account().put("hapi-models")
    account().put("hapi-models", f"{made.hex}.safetensors", data=made.data)
    return made


def test_a_shard_becomes_the_features_of_a_local_run(cluster, account, container, model):
    data = shard(5)
    account().put(container, "s.tar", data=data)
    cuts = model.extractor.cuts_for((3, 32, 32))
    for cut in (cuts[0], cuts[len(cuts) // 2], cuts[-1]):
        response = get(account(), account().url(container, "s.tar"), hapi_headers(model, cut.name))
        found = decoded(response)
        assert np.array_equal(found.features, features(model, cut.name, data))
        assert found.label.tolist() == [0, 1, 2, 0, 1]
        assert found.index.tolist() == [0, 1, 2, 3, 4]
        assert response.headers["X-Hapi-Model"] == model.digest
        assert response.headers["X-Hapi-Split"] == cut.name
        assert response.headers["X-Hapi-Dtype"] == "float32"
        assert response.headers["X-Hapi-Samples"] == "0-4/5"
        assert response.headers["X-Hapi-Source-Etag"] == hashlib.md5(data).hexdigest()
        assert response.headers["ETag"].startswith('W/"')
        for name in ("X-Hapi-Numerics", "X-Hapi-Batch-Size", "Server-Timing", "X-Trans-Id"):
            assert response.headers[name]
        assert "X-Hapi-Model" in response.headers["Vary"]
        assert "Last-Modified" not in response.headers
        assert "features" in safetensors.numpy.load(response.content)


def test_one_image_by_cut_index_and_a_range_of_a_shard(account, container, model):
    data = encode(picture(seed=5))
    account().put(container, "one.jpg", data=data)
    url = account().url(container, "one.jpg")
    by_name = decoded(get(account(), url, hapi_headers(model)))
    index = len(model.extractor.cuts_for((3, 32, 32))) - 1
    by_index = decoded(get(account(), url, hapi_headers(model, str(index))))
    assert np.array_equal(by_name.features, by_index.features)
    assert by_name.label.tolist() == [-1]

    data = shard(6)
    account().put(container, "s.tar", data=data)
    headers = hapi_headers(model, X_Hapi_Samples="2-3")
    part = decoded(get(account(), account().url(container, "s.tar"), headers))
    assert part.index.tolist() == [2, 3]
    assert np.allclose(part.features, features(model, model.last_cut, data)[2:4], rtol=1e-5)


def test_without_our_headers_swift_is_swift(account, container, model):
    data = shard(2)
    account().put(container, "s.tar", data=data, X_Object_Meta_Mine="yes")
    url = account().url(container, "s.tar")
    plain = get(account(), url, {})
    assert plain.content == data
    assert plain.headers["X-Object-Meta-Mine"] == "yes"
    # Without X-Hapi-Model the others mean nothing.
    assert get(account(), url, {"X-Hapi-Split": "nonsense"}).content == data
    part = get(account(), url, {"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, data[10:20])
    # Nor do they where there is no object, or nothing is read.
    listing = get(account(), account().url(container), hapi_headers(model))
    assert (listing.status_code, listing.content) == (200, b"s.tar\n")
    put = account().session.put(
        account().url(container, "new"), data=b"x", headers=hapi_headers(model)
    )
    assert put.status_code == 201


def test_range_and_the_objects_conditionals_are_about_the_object(account, container, model):
    data = shard(3)
    account().put(container, "s.tar", data=data)
    url = account().url(container, "s.tar")
    whole = get(account(), url, hapi_headers(model))
    same = get(account(), url, hapi_headers(model, Range="bytes=0-9"))
    assert same.content == whole.content
    etag = hashlib.md5(data).hexdigest()
    assert get(account(), url, hapi_headers(model, If_Match=etag)).content == whole.content
    for headers in (
        {"If_Match": "0" * 32},
        {"If_Match": whole.headers["ETag"]},
        {"If_Unmodified_Since": "Thu, 01 Jan 2015 00:00:00 GMT"},
    ):
        assert get(account(), url, hapi_headers(model, **headers)).status_code == 412
    later = "Thu, 01 Jan 2037 00:00:00 GMT"
    assert get(account(), url, hapi_headers(model, If_Modified_Since=later)).status_code == 200
    # The object's own ETag says nothing about the features.
    assert get(account(), url, hapi_headers(model, If_None_Match=etag)).status_code == 200


def test_not_modified_without_compute(cluster, account, container, model):
    account().put(container, "s.tar", data=shard(3))
    url = account().url(container, "s.tar")
    etag = get(account(), url, hapi_headers(model)).headers["ETag"]
    admitted = engine_requests(cluster)["admitted"]
    again = get(account(), url, hapi_headers(model, If_None_Match=f'"other", {etag}'))
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
    assert engine_requests(cluster)["admitted"] == admitted
    assert get(account(), url, hapi_headers(model, If_None_Match='W/"other"')).status_code == 200


def test_zstd(account, container, model):
    account().put(container, "s.tar", data=shard(4))
    url = account().url(container, "s.tar")
    plain = get(account(), url, hapi_headers(model, "0"))
    response = get(account(), url, hapi_headers(model, "0", Accept_Encoding="gzip, zstd"))
    assert response.headers["Content-Encoding"] == "zstd"
    assert response.headers["ETag"] != plain.headers["ETag"]
    found = payload.decode(zstandard.ZstdDecompressor().decompress(response.content))
    assert np.array_equal(found.features, decoded(plain).features)


def test_head_knows_and_does_not_compute(cluster, account, container, model):
    account().put(container, "s.tar", data=shard(3))
    url = account().url(container, "s.tar")
    etag = get(account(), url, hapi_headers(model)).headers["ETag"]
    admitted = engine_requests(cluster)["admitted"]
    head = get(account(), url, hapi_headers(model), "HEAD")
    assert (head.status_code, head.content, head.headers["ETag"]) == (200, b"", etag)
    assert head.headers["X-Hapi-Split"] == model.last_cut
    assert get(account(), url, hapi_headers(model, "nonsense"), "HEAD").status_code == 400
    assert get(account(), url + "x", hapi_headers(model), "HEAD").status_code == 404
    assert engine_requests(cluster)["admitted"] == admitted
    # The connection is still good for more.
    assert get(account(), url, {}).status_code == 200


def test_keep_alive_goes_on_after_features_and_problems(cluster, account, container, model):
    account().put(container, "s.tar", data=shard(2))
    url = account().url(container, "s.tar")
    with requests.Session() as session:
        session.trust_env = False
        session.headers["X-Auth-Token"] = account().token
        for _ in range(3):
            assert session.get(url, headers=hapi_headers(model)).status_code == 200
            assert session.get(url, headers=hapi_headers(model, "nonsense")).status_code == 400
            assert session.get(url).status_code == 200
        pools = session.get_adapter(url).poolmanager.pools
        (key,) = pools.keys()
        assert pools[key].num_connections == 1


def test_models_by_name_and_in_other_containers(cluster, account, container, tmp_path):
    mine = build(11, tmp_path)
    account().put(container, "my-net.safetensors", data=mine.data)
    account().put(container, f"{mine.hex}.safetensors", data=mine.data)
    data = shard(2)
    account().put(container, "s.tar", data=data)
    url = account().url(container, "s.tar")
    expected = features(mine, mine.last_cut, data)
    own = account().storage_url.rpartition("/")[2]
    for reference in ("my-net", mine.digest):
        for where in (container, f"{own}/{container}"):
            headers = hapi_headers(reference, mine.last_cut, X_Hapi_Model_Container=where)
            response = get(account(), url, headers)
            assert np.array_equal(decoded(response).features, expected)
            assert response.headers["X-Hapi-Model"] == mine.digest
    headers = hapi_headers("my-net", mine.last_cut)
    assert problem(get(account(), url, headers))[:2] == (404, "model-not-found")


def test_a_name_follows_its_object(account, container, tmp_path, cluster):
    old, new = build(12, tmp_path), build(13, tmp_path)
    account().put(container, "net.safetensors", data=old.data)
    account().put(container, "s.tar", data=shard(2))
    other = account("test:tester3")
    account().session.post(
        account().url(container), headers={"X-Container-Read": "test:tester3"}
    ).raise_for_status()
    url = account().url(container, "s.tar")
    headers = hapi_headers("net", old.last_cut, X_Hapi_Model_Container=container)
    assert get(account(), url, headers).headers["X-Hapi-Model"] == old.digest
    account().put(container, "net.safetensors", data=new.data)
    # Remembered for a while for the one who asked, looked up anew for anybody else.
    assert get(other, url, headers).headers["X-Hapi-Model"] == new.digest


def test_operators_models_are_open_to_all(cluster, account, tmp_path):
    node = build(14, tmp_path)
    directory = cluster.dir / "engine" / "models"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "node-net.safetensors").write_bytes(node.data)
    os.kill(cluster.pids["engine"], signal.SIGHUP)
    other = account("test2:tester2")
    other.put("pictures")
    data = shard(2)
    other.put("pictures", "s.tar", data=data)
    url = other.url("pictures", "s.tar")
    wait_until(
        lambda: get(other, url, hapi_headers("node-net", node.last_cut)).status_code == 200,
        "the operator's model",
    )
    for reference in ("node-net", node.digest):
        found = decoded(get(other, url, hapi_headers(reference, node.last_cut)))
        assert np.array_equal(found.features, features(node, node.last_cut, data))


def slo(account, container: str, name: str, pieces: list[bytes], segments: str) -> None:
    manifest = []
    for i, piece in enumerate(pieces):
        account.put(segments, f"{name}-{i}", data=piece)
        manifest.append({"path": f"/{segments}/{name}-{i}"})
    account.session.put(
        account.url(container, name) + "?multipart-manifest=put", data=json.dumps(manifest)
    ).raise_for_status()


def test_every_kind_of_object(account, container, model):
    data = shard(4)
    expected = features(model, model.last_cut, data)
    pieces = [data[:7000], data[7000:9000], data[9000:]]
    user = account()
    user.put(f"{container}-segments")
    slo(user, container, "slo.tar", pieces, f"{container}-segments")
    for i, piece in enumerate(pieces):
        user.put(f"{container}-segments", f"dlo-{i}", data=piece)
    user.put(container, "dlo.tar", X_Object_Manifest=f"{container}-segments/dlo-")
    user.put(container, "plain.tar", data=data)
    user.put(container, "link.tar", X_Symlink_Target=f"{container}/slo.tar")
    etags = {}
    for name in ("plain.tar", "slo.tar", "dlo.tar", "link.tar"):
        response = get(user, user.url(container, name), hapi_headers(model))
        assert np.array_equal(decoded(response).features, expected), name
        etags[name] = response.headers["X-Hapi-Source-Etag"]
        source = user.session.head(user.url(container, name)).headers["Etag"]
        assert etags[name] == source.strip('"')
        matching = hapi_headers(model, If_Match=source)
        assert get(user, user.url(container, name), matching).status_code == 200, name
        other = hapi_headers(model, If_Match='"nothing"')
        assert get(user, user.url(container, name), other).status_code == 412, name


def test_versions(account, container, model):
    user = account()
    versioned = f"{container}-versioned"
    user.put(versioned, X_Versions_Enabled="true")
    old, new = shard(2, seed=1), shard(2, seed=2)
    version = user.put(versioned, "s.tar", data=old).headers["X-Object-Version-Id"]
    user.put(versioned, "s.tar", data=new)
    url = user.url(versioned, "s.tar")
    found = decoded(get(user, url, hapi_headers(model)))
    assert np.array_equal(found.features, features(model, model.last_cut, new))
    found = decoded(get(user, f"{url}?version-id={version}", hapi_headers(model)))
    assert np.array_equal(found.features, features(model, model.last_cut, old))


def test_names_that_need_quoting(account, container, model):
    data = shard(1)
    name = "Bilder für 100% €/ä b?.tar"
    account().put(container, name, data=data)
    found = decoded(get(account(), account().url(container, name), hapi_headers(model)))
    assert np.array_equal(found.features, features(model, model.last_cut, data))
    status, _, document = problem(
        get(account(), account().url(container, name), hapi_headers(model, "nonsense"))
    )
    assert status == 400
    assert account().url(container, name).endswith(document["object"])


def test_info(cluster):
    info = requests.get(cluster.auth_url.replace("/auth/v1.0", "/info")).json()["swift_hapi"]
    assert info["dtypes"] == ["float32", "float16", "int8", "uint8"]
    assert info["encodings"] == ["identity", "zstd"]
    assert info["limits"]["max_object_bytes"] == 256 << 20
    assert "jpeg" in info["formats"]
    assert info["version"]


def test_a_client_that_leaves_frees_the_engine(cluster, account, container, tmp_path):
    slow = build(15, tmp_path, width=96, side=224)
    user = account()
    user.put("hapi-models", f"{slow.hex}.safetensors", data=slow.data)
    user.put(container, "many.tar", data=shard(1500))
    headers = hapi_headers(slow, slow.last_cut, X_Hapi_Transform="resize=224x224")
    get(user, user.url(container, "many.tar"), {**headers, "X-Hapi-Samples": "0-0"})

    def in_flight() -> int:
        return engine_status(cluster)["queue"]["in_flight"]

    before = engine_status(cluster)["counters"]
    address = urlsplit(user.storage_url)
    with socket.create_connection((address.hostname, address.port)) as client:
        lines = [f"GET {urlsplit(user.url(container, 'many.tar')).path} HTTP/1.1", "Host: swift"]
        lines += [f"X-Auth-Token: {user.token}", *(f"{k}: {v}" for k, v in headers.items())]
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        wait_until(lambda: in_flight() == 1, "the request to be admitted")
    wait_until(lambda: in_flight() == 0, "the engine to drop the work")
    after = engine_status(cluster)["counters"]
    assert after["clients_gone"] == before["clients_gone"] + 1
    assert after["samples"] == before["samples"]
