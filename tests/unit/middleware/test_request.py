"""One request through the filter, with an engine and a Swift that do as told."""

import contextlib
import errno
import itertools
import json
import os
import socket
import threading
import time

import eventlet
import pytest
from swift.common.swob import HTTPForbidden

from swift_hapi.middleware.engine_client import ShortAnswer
from swift_hapi.protocol.errors import AccountLimit, EngineBusy, ModelNotFound, UndecodableSample
from tests.unit.middleware.support import (
    FEATURES,
    HEADERS,
    MODEL,
    MODEL_HEX,
    MODEL_MD5,
    USER,
    Stored,
)

OBJECT = "/v1/AUTH_test/c/o"
MODEL_PATH = f"/v1/AUTH_test/hapi-models/{MODEL_HEX}.safetensors"
ANONYMOUS = {"swift.trans_id": "tx1"}


def test_features_come_with_the_contracts_headers_and_no_others(house):
    def script(peer):
        peer.read_body()
        peer.features(**{"X-Hapi-Cache": "miss", "X-Engine-Secret": "1", "Server": "uvicorn"})

    house.swift.objects[OBJECT].headers = {"X-Object-Meta-Mine": "1", "Etag": '"abc"'}
    house.engine.on_features = script
    status, headers, body = house.ask()
    assert (status, body) == (200, FEATURES)
    assert headers == {
        "content-type": "application/vnd.hapi.features+safetensors",
        "content-length": str(len(FEATURES)),
        "etag": 'W/"f"',
        "x-hapi-cache": "miss",
    }


def test_the_engine_gets_the_object_and_headers_of_our_making(house):
    house.swift.objects[OBJECT].headers = {"Etag": '"abc"'}
    house.ask(
        headers={
            "X-Hapi-Account": "forged",
            "X-Hapi-Deadline": "99999",
            "X-Hapi-Source-Etag": "forged",
            "X-Trans-Id": "forged",
            "X-Hapi-Samples": "0-3",
            "If-None-Match": 'W/"seen"',
            "Accept-Encoding": "gzip, zstd",
            "Cookie": "private",
        }
    )
    received = house.engine.requests[-1]
    assert (received.method, received.path) == ("POST", "/v1/features")
    assert received.body == b"image" * 1000
    deadline = float(received.headers.pop("x-hapi-deadline"))
    assert 290 < deadline <= 300
    assert received.headers == {
        "host": "localhost",
        "expect": "100-continue",
        "content-length": "5000",
        "x-hapi-model": MODEL,
        "x-hapi-split": "avgpool",
        "x-hapi-transform": "resize=8, crop=8",
        "x-hapi-samples": "0-3",
        "x-hapi-dtype": "float32",
        "x-hapi-on-error": "fail",
        "accept-encoding": "zstd",
        "if-none-match": 'W/"seen"',
        "x-hapi-account": "test",
        "x-hapi-object": OBJECT,
        "x-hapi-source-etag": "abc",
        "x-trans-id": "tx1",
    }


def test_the_inner_get_is_the_requesters_own_without_range_and_features_conditionals(house):
    house.ask(
        path=OBJECT + "?version-id=7",
        headers={
            "Range": "bytes=0-1",
            "If-None-Match": "x",
            "If-Modified-Since": "x",
            "Accept-Encoding": "zstd",
            "If-Match": "abc",
            "If-Unmodified-Since": "y",
            "X-Newest": "true",
        },
    )
    env = house.swift.calls[0]
    assert env["REQUEST_METHOD"] == "GET"
    assert env["QUERY_STRING"] == "version-id=7"
    assert env["REMOTE_USER"] == USER["REMOTE_USER"]
    assert env["swift.source"] == "HAPI"
    assert {key for key in env if key.startswith("HTTP_")} == {
        "HTTP_HOST",
        "HTTP_IF_MATCH",
        "HTTP_IF_UNMODIFIED_SINCE",
        "HTTP_X_AUTH_TOKEN",
        "HTTP_X_NEWEST",
    }


@pytest.mark.parametrize("status", ["401 Unauthorized", "404 Not Found", "409 Conflict", "412 No"])
def test_what_swift_denies_is_answered_by_swift_and_nobody_else_is_asked(house, status):
    house.swift.objects[OBJECT] = Stored(b"so sorry", status, {"X-Swift": "yes"})
    code, headers, body = house.ask()
    assert (code, body) == (int(status[:3]), b"so sorry")
    assert headers["x-swift"] == "yes"
    assert house.engine.requests == []
    assert house.swift.paths() == [f"GET {OBJECT}"]
    assert house.swift.open == 0


@pytest.mark.parametrize(
    ("headers", "culprit"),
    [
        ({"X-Hapi-Split": None}, "X-Hapi-Split"),
        ({"X-Hapi-Model": "sha256:short"}, "X-Hapi-Model"),
        ({"X-Hapi-Transform": "resize=none"}, "resize"),
        ({"X-Hapi-Samples": "3-1"}, "X-Hapi-Samples"),
        ({"X-Hapi-Model-Container": "a/b/c"}, "X-Hapi-Model-Container"),
        ({"X-Hapi-Model-Container": "a/%2F"}, "X-Hapi-Model-Container"),
    ],
)
def test_a_bad_header_costs_nothing(house, headers, culprit):
    status, _name, document = house.problem(headers=headers)
    assert status == 400
    assert culprit in document["detail"]
    assert document["trans_id"] == "tx1"
    assert document["object"] == OBJECT
    assert house.swift.calls == []
    assert house.engine.requests == []


@pytest.mark.parametrize("query", ["multipart-manifest=get", "symlink=get", "part-number=1"])
def test_queries_for_something_else_than_the_bytes_are_refused(house, query):
    status, name, document = house.problem(path=f"{OBJECT}?{query}")
    assert (status, name) == (400, "bad-header")
    assert query.split("=")[0] in document["detail"]
    assert house.swift.calls == []


def test_nobody_computes_for_the_anonymous(house):
    status, name, _ = house.problem(env=ANONYMOUS)
    assert (status, name) == (403, "anonymous-refused")
    signature = {"REMOTE_USER": ".wsgi.tempurl", "swift.authorize_override": True}
    assert house.problem(env={**ANONYMOUS, **signature})[1] == "anonymous-refused"
    assert house.engine.requests == []
    assert house.swift.open == 0


def test_the_anonymous_may_be_allowed_and_are_charged_apart(make_house):
    house = make_house(allow_anonymous=True)
    house.engine.known[MODEL_HEX] = (MODEL, MODEL_MD5, "operator")
    assert house.ask(env=ANONYMOUS)[0] == 200
    assert house.engine.requests[-1].headers["x-hapi-account"] == "anonymous:AUTH_test"


def test_the_anonymous_use_no_models_of_other_containers(make_house):
    house = make_house(allow_anonymous=True)
    assert house.problem(env=ANONYMOUS)[:2] == (403, "model-forbidden")
    assert house.swift.paths() == [f"GET {OBJECT}"]
    house.swift.objects[f"/v1/AUTH_test/c/{MODEL_HEX}.safetensors"] = house.swift.objects[
        MODEL_PATH
    ]
    assert house.ask(env=ANONYMOUS, headers={"X-Hapi-Model-Container": "c"})[0] == 200
    # Nothing is remembered for those who have no token.
    assert house.ask(env=ANONYMOUS, headers={"X-Hapi-Model-Container": "c"})[0] == 200
    assert house.swift.paths().count(f"HEAD /v1/AUTH_test/c/{MODEL_HEX}.safetensors") == 2


@pytest.mark.parametrize(
    ("headers", "detail"),
    [({"Content-Length": str((1 << 28) + 1)}, "268435456"), ({"Content-Length": ""}, "length")],
)
def test_objects_too_large_are_refused_before_the_engine(house, headers, detail):
    house.swift.objects[OBJECT].headers = headers
    status, name, document = house.problem()
    assert (status, name) == (413, "too-large")
    assert detail in document["detail"]
    assert house.engine.requests == []
    assert house.swift.open == 0


def test_early_answers_of_the_engine_leave_the_object_unread(house):
    house.swift.objects[OBJECT].pieces = iter([b"x" * (1 << 20) for _ in range(5)])
    house.swift.objects[OBJECT].headers = {"Content-Length": str(5 << 20)}
    house.engine.on_features = lambda peer: peer.problem(EngineBusy("full", retry_after=7))
    status, headers, body = house.ask()
    document = json.loads(body)
    assert (status, headers["retry-after"]) == (503, "7")
    assert document["type"] == "urn:hapi:error:engine-busy"
    assert document["retryable"] is True
    assert document["trans_id"] == "tx1"
    assert house.engine.requests[-1].body is None
    assert house.swift.open == 0
    assert len(list(house.swift.objects[OBJECT].pieces)) >= 4


def test_the_account_limit_has_its_reason_phrase(house):
    house.engine.on_features = lambda peer: peer.problem(AccountLimit("slow down"))
    status, name, _ = house.problem()
    assert (status, name) == (429, "account-limit")


def test_late_problems_keep_their_members(house):
    def script(peer):
        peer.read_body()
        peer.problem(UndecodableSample("sample 3: bad", sample=3, key="k", reason="truncated"))

    house.engine.on_features = script
    status, name, document = house.problem()
    assert (status, name) == (422, "undecodable-sample")
    assert (document["sample"], document["key"], document["reason"]) == (3, "k", "truncated")


def test_304_has_no_body_and_its_etag(house):
    house.engine.on_features = lambda peer: peer.answer("304 Not Modified", {"ETag": 'W/"f"'})
    status, headers, body = house.ask(headers={"If-None-Match": 'W/"f"'})
    assert (status, headers, body) == (304, {"etag": 'W/"f"'}, b"")
    assert house.swift.open == 0


def test_head_computes_nothing(house):
    status, headers, body = house.ask("HEAD")
    assert (status, body) == (200, b"")
    assert headers["etag"] == 'W/"f"'
    assert house.swift.paths() == [f"HEAD {OBJECT}", f"HEAD {MODEL_PATH}"]
    assert house.engine.paths()[-1] == "HEAD /v1/features"


def test_head_problems_have_no_body(house):
    house.engine.on_features = lambda peer: peer.answer("400 Bad", {})
    assert house.ask("HEAD")[::2] == (400, b"")
    status, _headers, body = house.ask("HEAD", headers={"X-Hapi-Split": None})
    assert (status, body) == (400, b"")


@pytest.mark.parametrize(
    "pieces",
    [[b"image"], [], [b"image" * 1001]],
    ids=["short", "empty", "long"],
)
def test_a_source_of_the_wrong_length_never_becomes_features(house, pieces):
    house.swift.objects[OBJECT].pieces = pieces
    status, name, document = house.problem()
    assert (status, name) == (503, "source-truncated")
    assert document["retryable"] is True
    assert house.engine.requests[-1].complete is False
    assert house.swift.open == 0


def test_a_source_that_fails_never_becomes_features(house):
    def pieces():
        yield b"image"
        raise OSError(errno.EIO, "disk")

    house.swift.objects[OBJECT].pieces = pieces()
    assert house.problem()[:2] == (503, "source-truncated")
    assert house.engine.requests[-1].complete is False
    assert house.swift.open == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: text/html\r\n\r\nhello",
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\n\r\nOops!",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 400 Bad\r\nContent-Type: application/problem+json\r\n\r\n{",
        b"HTTP/1.1 400 Bad\r\nContent-Type: application/problem+json\r\n\r\n[1]",
        b"HTTP/1.1 100 Continue\r\nX: " + b"x" * 70000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000,
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_garbage_of_the_engine_is_an_engine_that_is_unavailable(house, garbage, late):
    def script(peer):
        if late:
            peer.read_body()
        peer.send(garbage)

    house.engine.on_features = script
    status, name, document = house.problem()
    assert (status, name) == (503, "engine-unavailable")
    assert document["retryable"] is True
    assert house.swift.open == 0


def test_an_early_answer_in_the_middle_of_the_body_is_relayed(house):
    house.swift.objects[OBJECT].pieces = (b"x" * 65536 for _ in itertools.repeat(0, 1024))
    house.swift.objects[OBJECT].headers = {"Content-Length": str(65536 * 1024)}

    def script(peer):
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        peer.file.read(100_000)
        peer.problem(EngineBusy("changed my mind"))

    house.engine.on_features = script
    assert house.problem()[:2] == (503, "engine-busy")
    assert house.swift.open == 0


def test_an_engine_that_is_not_there(house):
    house.engine.close()
    status, headers, body = house.ask()
    assert status == 503
    assert json.loads(body)["type"] == "urn:hapi:error:engine-unavailable"
    assert int(headers["retry-after"]) > 0
    assert house.swift.open == 0
    assert house.ask(headers={"X-Hapi-Model": None})[::2] == (200, b"image" * 1000)


def test_an_engine_that_accepts_nobody(make_house):
    house = make_house(connect_timeout=0.2)
    house.engine.close()
    path = house.filter.config.engine
    os.unlink(path)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen(0)
        while True:
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            if client.connect_ex(path) == errno.EAGAIN:
                break
        used = time.process_time()
        assert house.problem()[:2] == (503, "engine-unavailable")
        assert time.process_time() - used < 0.15  # it waits, it does not spin
    assert house.swift.open == 0


def test_a_source_that_trickles_meets_the_deadline(make_house, monkeypatch):
    monkeypatch.setattr("swift_hapi.middleware.source.DRAIN_SECONDS", 0.1)
    monkeypatch.setattr("swift_hapi.middleware.engine_client.GRACE", 0.0)
    house = make_house(deadline=0.1)

    def pieces():
        while True:
            eventlet.sleep(0.03)
            yield b"i"

    house.swift.objects[OBJECT].pieces = pieces()
    assert house.problem()[:2] == (504, "deadline-exceeded")
    assert house.swift.open == 0


def test_a_body_that_ends_early_is_never_complete(house):
    def script(peer):
        peer.read_body()
        peer.features(body=FEATURES, **{"Content-Length": str(len(FEATURES) + 1)})

    house.engine.on_features = script
    with pytest.raises(ShortAnswer):
        house.ask()


def test_an_engine_that_lost_a_remembered_model_gets_it_again(house):
    assert house.ask()[0] == 200
    asked = len(house.engine.requests)
    del house.engine.known[MODEL_HEX]

    def script(peer):
        if MODEL_HEX in house.engine.known:
            house.engine.features(peer)
        else:
            peer.problem(ModelNotFound("gone"))

    house.engine.on_features = script
    assert house.ask()[::2] == (200, FEATURES)
    assert house.engine.paths()[asked:] == [
        "POST /v1/features",
        f"HEAD /v1/models/{MODEL_HEX}",
        f"HEAD /v1/models/{MODEL_HEX}",
        f"PUT /v1/models/{MODEL_HEX}",
        "POST /v1/features",
    ]
    assert house.swift.open == 0


def test_an_engine_that_always_loses_models_is_asked_no_more_than_twice(house):
    house.engine.on_features = lambda peer: peer.problem(ModelNotFound("gone"))
    assert house.problem()[:2] == (404, "model-not-found")
    assert house.problem()[:2] == (404, "model-not-found")
    assert house.engine.paths().count("POST /v1/features") == 3
    assert house.swift.open == 0


def test_the_object_is_read_anew_after_a_model_has_travelled(house):
    house.engine.known.clear()
    house.engine.on_upload = lambda peer: (
        peer.received.headers.update({"open-bodies": str(house.swift.open)}),
        house.engine.upload(peer),
    )
    assert house.ask()[::2] == (200, FEATURES)
    assert house.swift.paths() == [
        f"GET {OBJECT}",
        f"HEAD {MODEL_PATH}",
        f"GET {MODEL_PATH}",
        f"GET {OBJECT}",
    ]
    upload = next(r for r in house.engine.requests if r.method == "PUT")
    assert upload.headers["open-bodies"] == "1"  # the model's own
    assert house.swift.open == 0


def test_an_object_that_changes_hands_meanwhile_is_denied(house):
    house.engine.known.clear()

    def upload(peer):
        house.swift.objects[OBJECT] = Stored(b"no more", "403 Forbidden")
        house.engine.upload(peer)

    house.engine.on_upload = upload
    assert house.ask()[::2] == (403, b"no more")
    assert "POST /v1/features" not in house.engine.paths()


def test_subrequests_run_with_the_requesters_rights_and_without_his_query(house):
    def authorize(request):
        return HTTPForbidden(request=request) if "hapi-models" in request.path else None

    env = {**USER, "swift.authorize": authorize}
    status, name, _ = house.problem(env=env, path=OBJECT + "?version-id=7")
    assert (status, name) == (403, "model-forbidden")
    assert house.swift.calls[-1]["QUERY_STRING"] == ""
    assert house.swift.calls[-1]["swift.source"] == "HAPI"
    assert not any(path.startswith("POST") for path in house.engine.paths())


def test_the_deadline_ends_the_wait(make_house, monkeypatch):
    monkeypatch.setattr("swift_hapi.middleware.engine_client.GRACE", 0.2)
    house = make_house(deadline=0.2)

    def script(peer):
        peer.read_body()
        peer.file.read()  # until the filter closes

    house.engine.on_features = script
    status, name, _ = house.problem()
    assert (status, name) == (504, "deadline-exceeded")


def test_an_engine_that_does_not_answer_headers_is_unavailable(make_house, monkeypatch):
    monkeypatch.setattr("swift_hapi.middleware.engine_client.ADMISSION_GRACE", 0.1)
    house = make_house(admission_timeout=0.1)
    house.engine.on_features = lambda peer: peer.file.read()
    assert house.problem()[:2] == (503, "engine-unavailable")
    assert house.swift.open == 0


def test_quoted_paths_in_messages(house):
    house.swift.objects["/v1/AUTH_test/c/gr\u00c3\u00bc n"] = Stored(b"image")
    status, _headers, _body = house.ask(path="/v1/AUTH_test/c/gr%C3%BC%20n")
    assert status == 200
    assert house.engine.requests[-1].headers["x-hapi-object"] == "/v1/AUTH_test/c/gr%C3%BC%20n"


def test_one_line_is_logged_and_no_secret(house):
    house.ask()
    (line,) = house.logger.lines
    for part in (OBJECT, "test", "200", "sha256:" + MODEL_HEX[:12], "avgpool", "8000 bytes"):
        assert part in line
    assert HEADERS["X-Auth-Token"] not in line
    assert house.logger.counted == ["hapi.GET.200", "hapi.GET.200.timing", "hapi.bytes+8000"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("where", ["on_model", "on_features"])
def test_an_engine_that_does_not_answer_meets_the_deadline(house, monkeypatch, method, where):
    monkeypatch.setattr("swift_hapi.middleware.engine_client.GRACE", 0.1)
    left = threading.Event()

    def hang(peer):
        left.wait(30)

    setattr(house.engine, where, hang)
    try:
        status, _, _ = house.ask(method=method, headers={"X-Hapi-Deadline": "0.2"})
    finally:
        left.set()
    assert status == 504
    assert house.swift.open == 0


@pytest.mark.parametrize("value", ['"a\r\n b"', '"\x01"', '"\x7f"', "a\0"])
def test_an_odd_if_none_match_is_named(house, value):
    status, name, document = house.problem(headers={"If-None-Match": value})
    assert (status, name) == (400, "bad-header")
    assert "If-None-Match" in document["detail"]


@pytest.mark.parametrize("value", ['"a", W/"b"', '"a",\t*', '"\xe4"'])
def test_usual_tags_go_on_to_the_engine(house, value):
    assert house.ask(headers={"If-None-Match": value})[0] == 200
    assert house.engine.requests[-1].headers["if-none-match"].encode("latin-1") in (
        value.encode("latin-1"),
        value.encode(),
    )
