"""Start, socket, signals, end."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys

import pytest

from tests.unit.engine.client import Expecting, ask, ask_expecting
from tests.unit.engine.conftest import EngineProcess, feature_headers, post, shard


def run(*args: str) -> subprocess.CompletedProcess:
    argv = [sys.executable, "-m", "swift_hapi.engine.main", *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def refuses(engine: EngineProcess) -> bool:
    try:
        ask(engine.socket, "GET", "/livez")
    except OSError:
        return True
    return False


def test_a_life(tmp_path, models):
    """Started; killed; started again with what it had; terminated while it works."""
    own = EngineProcess(
        tmp_path, socket_mode="0660", socket_group=os.getgid(), drain_timeout=3
    )
    try:
        own.start()
        assert stat.S_IMODE(own.socket.stat().st_mode) == 0o660
        assert own.socket.stat().st_gid == os.getgid()
        assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
        second = run("--config", str(own.config))
        assert second.returncode == 1
        assert "another engine" in second.stderr
        for model in models:
            data = model.path.read_bytes()
            url = f"/v1/models/{model.hex}"
            assert ask_expecting(own.socket, "PUT", url, data).status == 201
        body = shard(6)
        before = post(own, body, feature_headers(models[0].digest))
        assert before.status == 200

        own.process.send_signal(signal.SIGKILL)
        own.process.wait(60)
        assert own.socket.exists()
        (tmp_path / "cache" / ".upload-left-behind").write_bytes(b"x")
        own.start()
        assert own.status()["pid"] == own.process.pid
        assert not (tmp_path / "cache" / ".upload-left-behind").exists()
        own.wait_until(lambda: post(own, b"", feature_headers(models[0].digest)).status == 415)
        assert post(own, body, feature_headers(models[0].digest)).body == before.body
        check_damage(own, models[1])

        headers = feature_headers(models[0].digest)
        with (
            Expecting(own.socket, "POST", "/v1/features", len(body), headers) as request,
            Expecting(own.socket, "POST", "/v1/features", len(body), headers) as silent,
        ):
            request.wait_for_100()
            silent.wait_for_100()
            request.send(body[:2000])
            own.process.send_signal(signal.SIGTERM)
            own.wait_until(lambda: refuses(own))
            request.send(body[2000:])
            assert request.answer().body == before.body
            # One that never sends is waited for no longer than drain_timeout.
            answer = silent.answer()
            assert (answer.status, answer.problem) == (503, "engine-unavailable")
        assert own.process.wait(60) == 0
        assert not own.socket.exists()
    finally:
        own.stop()


def check_damage(engine: EngineProcess, model) -> None:
    """A damaged file is noticed when it is loaded; the filter is told to send it anew."""
    (cached,) = (engine.directory / "cache").glob(f"{model.hex}-*")
    content = bytearray(cached.read_bytes())
    content[-1] ^= 1
    cached.write_bytes(content)
    answer = post(engine, b"", feature_headers(model.digest))
    assert (answer.status, answer.problem) == (404, "model-not-found")
    assert ask(engine.socket, "HEAD", f"/v1/models/{model.hex}").status == 404
    assert not cached.exists()


def test_other_paths_and_methods(engine):
    for method, url, status in (
        ("GET", "/", 404),
        ("GET", "/v1/features", 405),
        ("DELETE", "/v1/models/abc", 405),
        ("GET", "/livez", 200),
        ("HEAD", "/readyz", 200),
    ):
        answer = ask(engine.socket, method, url)
        assert answer.status == status, url
        if status >= 400:
            assert answer.problem == "no-such-route"


@pytest.mark.parametrize(
    "text, word",
    [
        ("[engine]\nsoket = /tmp/x\n", "soket"),
        ("[engine]\nbatch_max = many\n", "batch_max"),
        ("[motor]\n", "[engine]"),
        ("no ini file", "engine.conf"),
    ],
)
def test_bad_configuration(tmp_path, text, word):
    path = tmp_path / "engine.conf"
    path.write_text(text)
    done = run("--config", str(path))
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_no_configuration(tmp_path):
    assert run("--config", str(tmp_path / "none.conf")).returncode == 2


def test_cannot_bind(tmp_path):
    path = tmp_path / "engine.conf"
    path.write_text(f"[engine]\nsocket = {tmp_path}/{'long' * 30}/engine.sock\n")
    done = run("--config", str(path))
    assert done.returncode == 1
    assert "too long" in done.stderr
    assert "Traceback" not in done.stderr


def test_ends_when_it_cannot_work(tmp_path):
    (tmp_path / "cache").write_text("a file where a directory should be")
    directory = tmp_path / "run"
    path = tmp_path / "engine.conf"
    path.write_text(
        f"[engine]\nsocket = {directory}/e.sock\ncache_dir = {tmp_path}/cache\n"
    )
    done = run("--config", str(path))
    assert done.returncode == 1
    assert "cannot work" in done.stderr
    assert not (directory / "e.sock").exists()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
