"""``hapi engine status`` against a socket that answers as an engine does."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from hapi_compute.cli.main import main

STATUS = {
    "version": "1.0",
    "pid": 77,
    "worker": 0,
    "uptime": 12.3,
    "ready": True,
    "device": "cpu",
    "models": {"known": ["a", "b"], "loaded": ["a"], "evictions": 3},
    "queue": {"in_flight": 5, "places": 64, "waiting": 2, "expected_seconds": 1.5},
    "memory": {
        "used_bytes": 30 << 20,
        "budget_bytes": 100 << 20,
        "input_bytes": 4 << 20,
        "output_bytes": 1 << 20,
        "weight_bytes": 20 << 20,
        "reserved_bytes": 5 << 20,
    },
    "lanes": [
        {
            "model": "resnet18", "cut": "avgpool", "shape": [3, 224, 224], "target": 8,
            "running": 8, "waiting": 24, "accounts": 2, "sample_seconds": 0.02,
            "activation_bytes": 7 << 20,
        }
    ],
    "accounts": {
        "AUTH_test": {"requests": 9, "samples": 90, "cpu_seconds": 4.25, "bytes_out": 3 << 20}
    },
    "counters": {"samples": 90, "refused": 1, "clients_gone": 0},
}  # fmt: skip


class Answering:
    """A socket that gives everybody the same answer."""

    def __init__(self, path: Path, body: bytes, status: str = "200 OK"):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self._answer = head.encode() + body
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(self._answer)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def directory():
    # Socket paths must be short, pytest's directories are not.
    with tempfile.TemporaryDirectory(prefix="hapi-") as name:
        yield Path(name)


@pytest.fixture
def answering(directory):
    """``answering(name, status)``: the path of a socket that answers."""
    servers = []

    def make(name: str, body: dict | bytes, status: str = "200 OK") -> Path:
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        servers.append(Answering(path, data, status))
        return path

    yield make
    for server in servers:
        server.close()


def test_as_text(answering, capsys):
    path = answering("e.sock", STATUS)
    assert main(["engine", "status", "--socket", str(path)]) == 0
    text = capsys.readouterr().out
    for words in (
        "worker 0, pid 77, ready, up 12 s, on cpu",
        "5 of 64 admitted, 2 waiting",
        "30 of 100 MiB: objects 4, responses 1, weights 20, micro-batches 5",
        "2 known, 1 loaded, 3 evictions",
        "resnet18 avgpool",
        "3x224x224",
        "20.00",
        "AUTH_test",
    ):
        assert words in text, text


def test_as_json_of_an_embedded_cluster(answering, directory, capsys):
    answering("run/engine.sock", STATUS)
    assert main(["engine", "status", "--dir", str(directory), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"workers": [STATUS]}
    target = directory / "status.json"
    assert main(["engine", "status", "--dir", str(directory), "--json", str(target)]) == 0
    assert json.loads(target.read_text()) == {"workers": [STATUS]}


def test_all_workers(answering, capsys):
    path = answering("e.sock", STATUS)
    for number in (0, 1):
        answering(f"e.sock.{number}", STATUS | {"worker": number, "lanes": [], "accounts": {}})
    (path.parent / "e.sock.lock").write_bytes(b"")
    assert main(["engine", "status", "--socket", str(path), "--json"]) == 0
    workers = json.loads(capsys.readouterr().out)["workers"]
    assert [worker["worker"] for worker in workers] == [0, 1]


def test_nobody_there(directory, capsys):
    assert main(["engine", "status", "--socket", str(directory / "none")]) == 1
    assert "none" in capsys.readouterr().err


@pytest.mark.parametrize(
    "body, status", [(b"hello", "200 OK"), (b"{}", "503 Service Unavailable")]
)
def test_somebody_else_there(answering, capsys, body, status):
    path = answering("e.sock", body, status)
    assert main(["engine", "status", "--socket", str(path)]) == 1
    assert "e.sock" in capsys.readouterr().err
