"""What passes through, what is logged, and the factory."""

import subprocess
import sys

import pytest
from swift.common.registry import get_swift_info

from swift_hapi import middleware
from swift_hapi.middleware import filter as filter_module
from swift_hapi.middleware.engine_client import ShortAnswer
from swift_hapi.middleware.filter import HapiMiddleware
from tests.unit.middleware.support import FEATURES, HEADERS, USER, Logger, Stored

OBJECT = "/v1/AUTH_test/c/o"


@pytest.mark.parametrize(
    ("method", "path", "env", "headers"),
    [
        ("GET", OBJECT, {}, {"X-Hapi-Model": None}),
        ("PUT", OBJECT, {}, {}),
        ("POST", OBJECT, {}, {}),
        ("DELETE", OBJECT, {}, {}),
        ("GET", "/v1/AUTH_test/c", {}, {}),
        ("GET", "/v1/AUTH_test/c/", {}, {}),
        ("GET", "/v1/AUTH_test", {}, {}),
        ("GET", "/info", {}, {}),
        ("GET", OBJECT, {"swift.source": "S3"}, {}),
    ],
)
def test_what_is_not_ours_passes_untouched(house, method, path, env, headers):
    house.swift.objects.setdefault(path, Stored(b"plain"))
    seen = []
    original = house.filter.app
    house.filter.app = lambda env, start: seen.append(dict(env)) or original(env, start)
    status, _headers, body = house.ask(method, path, {**USER, **env}, headers)
    assert status == 200
    assert body == house.swift.objects[path].body
    assert house.engine.requests == []
    assert house.logger.lines == []
    (call,) = seen
    assert call.get("swift.source") == env.get("swift.source")
    for name, value in {**HEADERS, **headers}.items():
        assert call.get("HTTP_" + name.upper().replace("-", "_")) == value


def test_problems_are_logged_by_name(house):
    house.ask(headers={"X-Hapi-Split": None})
    assert "400 bad-header, model -, cut -" in house.logger.lines[0]
    assert house.logger.counted[0] == "hapi.GET.400"


def test_an_aborted_body_is_closed_and_logged_once(house):
    started = []
    env = {"REQUEST_METHOD": "GET", "PATH_INFO": OBJECT, "QUERY_STRING": "", **USER}
    env |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in HEADERS.items()}
    env |= {"SERVER_NAME": "localhost", "SERVER_PORT": "80", "wsgi.url_scheme": "http"}
    body = house.filter(env, lambda status, headers, exc=None: started.append(status))
    assert next(iter(body)) == FEATURES
    body.close()
    body.close()
    assert len(house.logger.lines) == 1
    assert started == ["200 OK"]


def test_a_short_body_is_logged_with_what_went_out(house):
    def script(peer):
        peer.read_body()
        peer.features(body=b"x" * 10, **{"Content-Length": "11"})

    house.engine.on_features = script
    with pytest.raises(ShortAnswer):
        house.ask()
    assert "10 bytes" in house.logger.lines[0]


def test_the_factory_registers_info_and_warns_of_unknown_options(monkeypatch):
    logger = Logger()
    monkeypatch.setattr(filter_module, "get_logger", lambda conf, log_route: logger)
    make = middleware.filter_factory(
        {"log_level": "INFO"}, engine="unix:/run/e.sock", dead_line="3", max_object_bytes="1000"
    )
    app = object()
    made = make(app)
    assert isinstance(made, HapiMiddleware)
    assert made.app is app
    info = get_swift_info()["swift_hapi"]
    assert info["limits"]["max_object_bytes"] == 1000
    assert info["dtypes"] == ["float32", "float16", "int8", "uint8"]
    assert "did you mean deadline?" in logger.lines[0]


def test_the_factory_refuses_bad_options():
    with pytest.raises(ValueError, match="option engine"):
        middleware.filter_factory({})


def test_swifts_workers_load_neither_torch_nor_numpy():
    code = (
        "import swift_hapi.middleware.filter, sys;"
        "print([m for m in ('torch', 'numpy', 'safetensors', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
