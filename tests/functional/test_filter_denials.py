"""What the filter refuses, and that nothing was asked of the engine before."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import time
from urllib.parse import urlsplit

import pytest
import requests

from tests.functional.extractors import build, shard
from tests.functional.filter_support import (
    decoded,
    engine_requests,
    get,
    hapi_headers,
    problem,
)
from tests.unit.samples.builders import encode, picture, tar

STRANGER = "test2:tester2"
GUEST = "test:tester3"


@pytest.fixture(scope="module")
def model(account, tmp_path_factory):
    made = build(1, tmp_path_factory.mktemp("models"))
    account().put("hapi-models")
    account().put("hapi-models", f"{made.hex}.safetensors", data=made.data)
    return made


@pytest.fixture
def object_url(account, container) -> str:
    account().put(container, "s.tar", data=shard(3))
    return account().url(container, "s.tar")


@pytest.fixture
def unasked(cluster):
    """``with unasked(): ...``: nothing in it reaches the engine."""

    @contextlib.contextmanager
    def check(admissions_only: bool = False):
        before = engine_requests(cluster)
        yield
        after = engine_requests(cluster)
        if admissions_only:
            assert after["admitted"] == before["admitted"]
        else:
            assert after == before

    return check


def readable_by(account, container: str, acl: str) -> None:
    account().session.post(
        account().url(container), headers={"X-Container-Read": acl}
    ).raise_for_status()


def test_a_wrong_token_is_401_and_the_engine_is_not_asked(object_url, model, unasked):
    with unasked():
        for token in ("AUTH_tk" + "0" * 32, "nonsense"):
            headers = {**hapi_headers(model), "X-Auth-Token": token}
            response = requests.get(object_url, headers=headers)
            assert response.status_code == 401
            assert "urn:hapi" not in response.text
        assert requests.get(object_url, headers=hapi_headers(model)).status_code == 401
        assert requests.head(object_url, headers=hapi_headers(model)).status_code == 401


def test_anothers_container_is_403_and_a_missing_object_404(account, object_url, model, unasked):
    with unasked():
        for user in (STRANGER, GUEST):
            response = get(account(user), object_url, hapi_headers(model))
            assert response.status_code == 403
            assert "urn:hapi" not in response.text
        assert get(account(), object_url + "x", hapi_headers(model)).status_code == 404


def test_an_slo_with_unreadable_segments_is_409(account, container, model, unasked):
    user = account()
    hidden = f"{container}-hidden"
    user.put(hidden)
    data = shard(2)
    user.put(hidden, "segment", data=data)
    user.session.put(
        user.url(container, "slo.tar") + "?multipart-manifest=put",
        data=json.dumps([{"path": f"/{hidden}/segment"}]),
    ).raise_for_status()
    readable_by(account, container, "test:tester3")
    url = user.url(container, "slo.tar")
    assert get(account(GUEST), url, {}, "HEAD").status_code == 200
    with unasked():
        response = get(account(GUEST), url, hapi_headers(model))
        assert response.status_code == 409
        assert "urn:hapi" not in response.text
    decoded(get(user, url, hapi_headers(model)))


def test_a_model_that_may_not_be_read(account, container, object_url, model, unasked):
    readable_by(account, container, "test2:tester2,test:tester3")
    decoded(get(account(), object_url, hapi_headers(model)))  # the engine has it now
    with unasked(admissions_only=True):
        for user in (STRANGER, GUEST):
            found = problem(get(account(user), object_url, hapi_headers(model)))
            assert found[:2] == (403, "model-forbidden")
            assert model.digest in found[2]["detail"]
    # Nor does a name of it help.
    own = account().storage_url.rpartition("/")[2]
    for where in (f"{own}/hapi-models", "hapi-models"):
        headers = hapi_headers(model, X_Hapi_Model_Container=where)
        assert problem(get(account(STRANGER), object_url, headers))[0] == 403
    # One's own model for somebody else's object works.
    account(STRANGER).put("my-models")
    account(STRANGER).put("my-models", f"{model.hex}.safetensors", data=model.data)
    theirs = account(STRANGER).storage_url.rpartition("/")[2]
    headers = hapi_headers(model, X_Hapi_Model_Container=f"{theirs}/my-models")
    decoded(get(account(STRANGER), object_url, headers))


def test_a_model_that_is_not_there(account, object_url, model, unasked):
    with unasked(admissions_only=True):
        missing = hapi_headers("sha256:" + "0" * 64, model.last_cut)
        status, name, document = problem(get(account(), object_url, missing))
        assert (status, name) == (404, "model-not-found")
        assert "0" * 64 in document["detail"]
        headers = hapi_headers("no-such-net", model.last_cut)
        status, name, document = problem(get(account(), object_url, headers))
        assert (status, name) == (404, "model-not-found")
        assert "no-such-net" in document["detail"]


def test_knowing_anothers_digest_is_worth_nothing(cluster, account, tmp_path, unasked):
    """The attack: a digest is overheard, and an object put under that name in one's account."""
    secret = build(21, tmp_path)
    account().put("private")
    account().put("private", f"{secret.hex}.safetensors", data=secret.data)
    account().put("private", "s.tar", data=shard(2))
    headers = hapi_headers(secret, X_Hapi_Model_Container="private")
    decoded(get(account(), account().url("private", "s.tar"), headers))

    thief = account(STRANGER)
    thief.put("hapi-models")
    thief.put("loot")
    thief.put("loot", "s.tar", data=shard(2))
    url = thief.url("loot", "s.tar")
    with unasked(admissions_only=True):
        assert problem(get(thief, url, hapi_headers(secret)))[:2] == (404, "model-not-found")
        for guess in (b"", b"garbage", secret.data[:-1] + b"\0", build(22, tmp_path).data):
            thief.put("hapi-models", f"{secret.hex}.safetensors", data=guess)
            status, name, document = problem(get(thief, url, hapi_headers(secret)))
            assert (status, name) == (409, "model-mismatch"), guess[:10]
            assert secret.digest in document["detail"]
            # Nor a second time.
            assert problem(get(thief, url, hapi_headers(secret)))[:2] == (409, "model-mismatch")
    # The owner is not disturbed by it.
    decoded(get(account(), account().url("private", "s.tar"), headers))
    # Who really has the bytes may use them.
    thief.put("hapi-models", f"{secret.hex}.safetensors", data=secret.data)
    decoded(get(thief, url, hapi_headers(secret)))


def test_models_that_are_no_plain_extractors(account, container, object_url, model, unasked):
    user = account()
    user.put(container, "segment", data=model.data)
    user.session.put(
        user.url(container, f"{model.hex}.safetensors") + "?multipart-manifest=put",
        data=json.dumps([{"path": f"/{container}/segment"}]),
    ).raise_for_status()
    user.put(container, "dlo.safetensors", X_Object_Manifest=f"{container}/segment")
    user.put(container, "text.safetensors", data=b"not an extractor")
    user.put(container, "link.safetensors", X_Symlink_Target=f"{container}/segment")
    where = {"X_Hapi_Model_Container": container}
    with unasked(admissions_only=True):
        status, name, document = problem(get(user, object_url, hapi_headers(model, **where)))
        assert (status, name) == (422, "model-invalid")
        assert "static large object" in document["detail"]
        for reference, detail in (("dlo", "dynamic large object"), ("text", "")):
            headers = hapi_headers(reference, model.last_cut, **where)
            status, name, document = problem(get(user, object_url, headers))
            assert (status, name) == (422, "model-invalid"), document
            assert detail in document["detail"]
    decoded(get(user, object_url, hapi_headers("link", model.last_cut, **where)))


@pytest.mark.parametrize(
    ("change", "status", "name", "culprit"),
    [
        ({"X_Hapi_Split": None}, 400, "bad-header", "X-Hapi-Split"),
        ({"X_Hapi_Split": "nonsense"}, 400, "bad-cut", "nonsense"),
        ({"X_Hapi_Split": "999"}, 400, "bad-cut", "999"),
        ({"X_Hapi_Split": "a b"}, 400, "bad-header", "X-Hapi-Split"),
        ({"X_Hapi_Model": "sha256:abc"}, 400, "bad-header", "X-Hapi-Model"),
        ({"X_Hapi_Model": "../etc/passwd"}, 400, "bad-header", "X-Hapi-Model"),
        ({"X_Hapi_Model_Container": "a/b/c"}, 400, "bad-header", "X-Hapi-Model-Container"),
        ({"X_Hapi_Model_Container": "a/..%2Fb"}, 400, "bad-header", "X-Hapi-Model-Container"),
        ({"X_Hapi_Transform": "explode=3"}, 400, "bad-transform", "explode"),
        ({"X_Hapi_Transform": "crop=0"}, 400, "bad-transform", "crop"),
        ({"X_Hapi_Transform": "rrc=32, hflip=0.5"}, 400, "bad-transform", "seed"),
        ({"X_Hapi_Transform": "crop=32, hue=0.1, seed=1"}, 400, "bad-transform", "seed, epoch"),
        ({"X_Hapi_Transform": "crop=32, contrast=nan"}, 400, "bad-transform", "contrast"),
        ({"X_Hapi_Samples": "2-1"}, 400, "bad-header", "X-Hapi-Samples"),
        ({"X_Hapi_Samples": "1-7"}, 416, "sample-range", "3"),
        ({"X_Hapi_Dtype": "float17"}, 400, "bad-header", "X-Hapi-Dtype"),
        ({"X_Hapi_Batch_Size": "0"}, 400, "bad-header", "X-Hapi-Batch-Size"),
        ({"X_Hapi_On_Error": "ignore"}, 400, "bad-header", "X-Hapi-On-Error"),
    ],
)
def test_problems_name_the_culprit(account, object_url, model, change, status, name, culprit):
    response = get(account(), object_url, hapi_headers(model, **change))
    found = problem(response)
    assert found[:2] == (status, name)
    assert culprit in found[2]["detail"]
    assert found[2]["retryable"] is False
    assert object_url.endswith(found[2]["object"])


def test_a_corrupt_image_is_named(account, container, model):
    good = encode(picture())
    members = [("a.jpg", good), ("b.jpg", good[: len(good) // 2]), ("c.jpg", good)]
    account().put(container, "s.tar", data=tar(members))
    url = account().url(container, "s.tar")
    status, name, document = problem(get(account(), url, hapi_headers(model)))
    assert (status, name) == (422, "undecodable-sample")
    assert (document["sample"], document["key"]) == (1, "b")
    assert document["reason"]
    found = decoded(get(account(), url, hapi_headers(model, X_Hapi_On_Error="report")))
    assert found.index.tolist() == [0, 2]


def test_objects_of_other_kinds(account, container, model):
    account().put(container, "text", data=b"hello, world\n" * 1000)
    account().put(container, "empty")
    for name in ("text", "empty"):
        found = problem(get(account(), account().url(container, name), hapi_headers(model)))
        assert found[:2] == (415, "unsupported-format")


def test_manifests_are_not_images(account, object_url, model, unasked):
    with unasked():
        for query in ("multipart-manifest=get", "symlink=get", "part-number=1"):
            found = problem(get(account(), f"{object_url}?{query}", hapi_headers(model)))
            assert found[:2] == (400, "bad-header")


def temp_url(account, url: str, key: str, method: str = "GET") -> str:
    path = urlsplit(url).path
    expires = int(time.time()) + 600
    message = f"{method}\n{expires}\n{path}".encode()
    signature = hmac.new(key.encode(), message, hashlib.sha256).hexdigest()
    return f"{url}?temp_url_sig={signature}&temp_url_expires={expires}"


def test_nobody_in_particular_is_refused(account, container, object_url, model, unasked):
    account().session.post(
        account().storage_url, headers={"X-Account-Meta-Temp-URL-Key": "secret"}
    ).raise_for_status()
    readable_by(account, container, ".r:*")
    signed = temp_url(account(), object_url, "secret")
    assert requests.get(object_url).status_code == 200
    assert requests.get(signed).status_code == 200
    with unasked():
        for url in (object_url, signed):
            found = problem(requests.get(url, headers=hapi_headers(model)))
            assert found[:2] == (403, "anonymous-refused")
            assert requests.head(url, headers=hapi_headers(model)).status_code == 403
        # A token beside a signature does not count, nor do headers that name somebody.
        headers = {**hapi_headers(model), "X-Auth-Token": account().token}
        assert problem(requests.get(signed, headers=headers))[:2] == (403, "anonymous-refused")
        forged = {"X-User-Id": "root", "X-Tenant-Id": "root", "X-Identity-Status": "Confirmed"}
        headers = {**hapi_headers(model), **forged}
        found = problem(requests.get(object_url, headers=headers))
        assert found[:2] == (403, "anonymous-refused")
    # Somebody in particular may, in a public container.
    account(STRANGER).put("my-models")
    account(STRANGER).put("my-models", f"{model.hex}.safetensors", data=model.data)
    theirs = account(STRANGER).storage_url.rpartition("/")[2]
    headers = hapi_headers(model, X_Hapi_Model_Container=f"{theirs}/my-models")
    decoded(get(account(STRANGER), object_url, headers))


def test_permission_is_taken_back_for_the_object_at_once(account, container, object_url, model):
    readable_by(account, container, "test2:tester2")
    account(STRANGER).put("my-models")
    account(STRANGER).put("my-models", f"{model.hex}.safetensors", data=model.data)
    theirs = account(STRANGER).storage_url.rpartition("/")[2]
    headers = hapi_headers(model, X_Hapi_Model_Container=f"{theirs}/my-models")
    decoded(get(account(STRANGER), object_url, headers))
    readable_by(account, container, "")
    assert get(account(STRANGER), object_url, headers).status_code == 403
