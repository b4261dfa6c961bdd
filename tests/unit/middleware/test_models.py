"""Whose model may be used, and when it travels."""

import hashlib
import threading

import eventlet
import pytest

from swift_hapi.protocol.errors import EngineBusy, ModelInvalid, ModelMismatch
from tests.unit.middleware.support import (
    FEATURES,
    MODEL,
    MODEL_BYTES,
    MODEL_HEX,
    MODEL_MD5,
    USER,
    Stored,
)

OBJECT = "/v1/AUTH_test/c/o"
MODEL_PATH = f"/v1/AUTH_test/hapi-models/{MODEL_HEX}.safetensors"
NAMED = "/v1/AUTH_test/hapi-models/net.safetensors"


def reads(house, path=MODEL_PATH) -> list[str]:
    return [call for call in house.swift.paths() if call.endswith(path)]


def uploads(house) -> list[str]:
    return [path for path in house.engine.paths() if path.startswith(("PUT", "POST /v1/models"))]


def test_a_known_model_is_checked_by_its_etag_and_does_not_travel(house):
    house.swift.objects[MODEL_PATH].headers = {"Etag": f'"{MODEL_MD5}"'}
    assert house.ask()[0] == 200
    assert reads(house) == [f"HEAD {MODEL_PATH}"]
    assert uploads(house) == []


def test_permission_is_remembered_for_the_token_and_no_other(house):
    for token, count in (("AUTH_tk1", 1), ("AUTH_tk1", 1), ("AUTH_tk2", 2), ("AUTH_tk1", 2)):
        assert house.ask(headers={"X-Auth-Token": token})[0] == 200
        assert len(reads(house)) == count
    # Nor for another container.
    other = f"/v1/AUTH_other/c/{MODEL_HEX}.safetensors"
    headers = {"X-Auth-Token": "AUTH_tk1", "X-Hapi-Model-Container": "AUTH_other/c"}
    assert house.problem(headers=headers)[:2] == (404, "model-not-found")
    assert len(reads(house, other)) == 1


def test_nothing_is_remembered_without_time_or_token(make_house):
    house = make_house(auth_cache_time=0.0)
    for count in (1, 2):
        house.ask()
        assert len(reads(house)) == count
    house = make_house()
    for count in (1, 2):
        house.ask(headers={"X-Auth-Token": None})
        assert len(reads(house)) == count


def test_refusals_are_not_remembered(house):
    model = house.swift.objects.pop(MODEL_PATH)
    assert house.problem()[:2] == (404, "model-not-found")
    house.swift.objects[MODEL_PATH] = model
    assert house.ask()[0] == 200


def test_operators_models_are_open_to_all(house):
    house.engine.known[MODEL_HEX] = (MODEL, MODEL_MD5, "operator")
    house.engine.known["net"] = (MODEL, MODEL_MD5, "operator")
    for reference in (MODEL, "net"):
        for _ in range(2):
            assert house.ask(headers={"X-Hapi-Model": reference})[0] == 200
    assert reads(house) == reads(house, NAMED) == []
    assert house.engine.requests[-1].headers["x-hapi-model"] == MODEL
    # The digest is remembered; whose name it is the operator may change.
    asked = [path for path in house.engine.paths() if path.startswith("HEAD")]
    assert asked == [f"HEAD /v1/models/{MODEL_HEX}", *["HEAD /v1/models/net"] * 2]


def test_a_name_in_a_named_container_is_never_the_operators(house):
    house.engine.known["net"] = ("sha256:" + "0" * 64, "0" * 32, "operator")
    house.swift.objects["/v1/AUTH_test/mine/net.safetensors"] = Stored(MODEL_BYTES)
    headers = {"X-Hapi-Model": "net", "X-Hapi-Model-Container": "mine"}
    assert house.ask(headers=headers)[0] == 200
    assert house.engine.requests[-1].headers["x-hapi-model"] == MODEL


def test_an_unknown_model_travels_once(house):
    house.engine.known.clear()
    for _ in range(2):
        assert house.ask()[::2] == (200, FEATURES)
    assert uploads(house) == [f"PUT /v1/models/{MODEL_HEX}"]
    upload = next(r for r in house.engine.requests if r.method == "PUT")
    assert (upload.body, upload.headers["expect"]) == (MODEL_BYTES, "100-continue")


def test_other_bytes_under_a_known_digest_never_serve(house):
    for body in (b"garbage", b"", MODEL_BYTES + b"\0"):
        house.swift.objects[MODEL_PATH] = Stored(body)
        for _ in range(2):
            assert house.problem()[:2] == (409, "model-mismatch")
    assert "POST /v1/features" not in house.engine.paths()


@pytest.mark.parametrize("header", ["X-Static-Large-Object", "X-Object-Manifest"])
def test_an_etag_of_a_large_object_is_not_believed(house, header):
    house.swift.objects[MODEL_PATH].headers = {header: "True", "Etag": MODEL_MD5}
    status, name, document = house.problem()
    assert (status, name) == (422, "model-invalid")
    assert "large object" in document["detail"]
    assert uploads(house) == []


def test_an_object_that_becomes_large_between_look_and_read(house):
    house.engine.known.clear()
    model = house.swift.objects[MODEL_PATH]
    original = house.filter.app

    def swift(env, start_response):
        if env["PATH_INFO"] == MODEL_PATH and env["REQUEST_METHOD"] == "GET":
            model.headers = {"X-Static-Large-Object": "True"}
        return original(env, start_response)

    house.filter._models._app = swift
    assert house.problem()[:2] == (422, "model-invalid")
    assert uploads(house) == []
    assert house.swift.open == 0


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("401 Unauthorized", (403, "model-forbidden")),
        ("403 Forbidden", (403, "model-forbidden")),
        ("404 Not Found", (404, "model-not-found")),
        ("409 Conflict", (422, "model-invalid")),
        ("503 Service Unavailable", (503, "model-unavailable")),
    ],
)
def test_what_swift_says_to_the_model(house, status, expected):
    house.swift.objects[MODEL_PATH] = Stored(b"", status)
    assert house.problem()[:2] == expected
    assert house.swift.open == 0


def test_a_model_too_large(make_house):
    house = make_house(max_model_bytes=3)
    status, name, document = house.problem()
    assert (status, name) == (413, "too-large")
    assert MODEL_HEX in document["detail"]


def test_what_the_engine_says_to_the_model_is_relayed(house):
    house.engine.known.clear()
    house.engine.on_upload = lambda peer: peer.problem(EngineBusy("full", retry_after=9))
    status, headers, _ = house.ask()
    assert (status, headers["retry-after"]) == (503, "9")


def test_an_engine_that_takes_another_digest_is_not_believed(house):
    house.engine.known.clear()
    wrong = {"X-Hapi-Model": "sha256:" + "0" * 64}
    house.engine.on_upload = lambda peer: (peer.read_body(), peer.answer("201 Created", wrong))
    assert house.problem()[:2] == (503, "engine-unavailable")


def test_a_model_that_ends_early(house):
    house.engine.known.clear()
    house.swift.objects[MODEL_PATH].pieces = [MODEL_BYTES[:-1]]
    assert house.problem()[:2] == (503, "source-truncated")
    assert MODEL_HEX not in house.engine.known


def test_a_name_follows_its_object_and_travels_only_when_it_changed(make_house):
    house = make_house(auth_cache_time=0.0)
    house.engine.known.clear()
    house.swift.objects[NAMED] = Stored(MODEL_BYTES)
    for _ in range(2):
        assert house.ask(headers={"X-Hapi-Model": "net"})[0] == 200
        assert house.engine.requests[-1].headers["x-hapi-model"] == MODEL
    assert uploads(house) == ["POST /v1/models"]
    house.swift.objects[NAMED] = Stored(b"other")
    digest = f"sha256:{hashlib.sha256(b'other').hexdigest()}"
    assert house.ask(headers={"X-Hapi-Model": "net"})[0] == 200
    assert house.engine.requests[-1].headers["x-hapi-model"] == digest
    assert uploads(house) == ["POST /v1/models"] * 2


def test_a_name_is_looked_at_by_each_request(house):
    named = {"X-Hapi-Model": "net", "X-Auth-Token": "AUTH_tk"}
    for body in (MODEL_BYTES, b"other", MODEL_BYTES):
        house.swift.objects[NAMED] = Stored(body)
        assert house.ask(headers=named)[0] == 200
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        assert house.engine.requests[-1].headers["x-hapi-model"] == digest
    assert len(uploads(house)) == 2  # the first one's digest is known still
    house.swift.objects[NAMED] = Stored(b"", "403 Forbidden")
    assert house.problem(headers=named)[:2] == (403, "model-forbidden")
    del house.swift.objects[NAMED]
    assert house.problem(headers=named)[:2] == (404, "model-not-found")
    house.engine.known["net"] = (MODEL, MODEL_MD5, "operator")
    assert house.ask(headers=named)[0] == 200
    del house.engine.known["net"]
    assert house.problem(headers=named)[:2] == (404, "model-not-found")


@pytest.mark.parametrize("error", [ModelInvalid, ModelMismatch])
@pytest.mark.parametrize("reference", [MODEL, "net"])
def test_what_is_refused_travels_once(house, error, reference):
    path = NAMED if reference == "net" else MODEL_PATH
    house.engine.known.clear()
    house.engine.on_upload = lambda peer: (peer.read_body(), peer.problem(error("no", why=3)))
    house.swift.objects[path] = Stored(b"garbage")
    asking = [
        eventlet.spawn(
            house.problem, headers={"X-Hapi-Model": reference, "X-Auth-Token": f"AUTH_tk{i}"}
        )
        for i in range(4)
    ]
    for thread in asking:
        status, name, document = thread.wait()
        assert (status, name, document["detail"]) == (error.status, error.name, "no")
        assert document["why"] == 3
    assert len(uploads(house)) == 1
    # Other bytes have another chance.
    house.engine.on_upload = house.engine.upload
    house.swift.objects[path] = Stored(MODEL_BYTES)
    assert house.ask(headers={"X-Hapi-Model": reference})[0] == 200
    assert house.swift.open == 0


def test_requests_that_need_one_model_at_once_bring_it_once(house):
    house.engine.known.clear()
    going_on = threading.Event()

    def upload(peer):
        going_on.wait(30)
        house.engine.upload(peer)

    house.engine.on_upload = upload
    asking = [
        eventlet.spawn(house.ask, headers={"X-Auth-Token": f"AUTH_tk{i}"}) for i in range(5)
    ]
    while len(reads(house)) < 6:  # five looks and one read
        eventlet.sleep(0.01)
    going_on.set()
    assert [thread.wait()[0] for thread in asking] == [200] * 5
    assert uploads(house) == [f"PUT /v1/models/{MODEL_HEX}"]
    assert house.filter._models._uploads == {}
    assert house.swift.open == 0


def test_a_failed_upload_lets_the_next_one_try(house):
    house.engine.known.clear()
    failures = iter([True])

    def upload(peer):
        if next(failures, False):
            peer.problem(EngineBusy("full"))
        else:
            house.engine.upload(peer)

    house.engine.on_upload = upload
    asking = [eventlet.spawn(house.ask) for _ in range(3)]
    assert sorted(thread.wait()[0] for thread in asking) == [200, 200, 503]
    assert house.filter._models._uploads == {}


def test_models_are_read_with_the_requesters_environment(house):
    house.ask(path=OBJECT + "?version-id=1", headers={"If-Match": "x", "Range": "bytes=0-0"})
    env = house.swift.calls[-1]
    assert env["PATH_INFO"] == MODEL_PATH
    assert env["REMOTE_USER"] == USER["REMOTE_USER"]
    assert env["swift.source"] == "HAPI"
    assert env["QUERY_STRING"] == ""
    assert not {"HTTP_IF_MATCH", "HTTP_RANGE", "HTTP_X_HAPI_MODEL"} & set(env)
