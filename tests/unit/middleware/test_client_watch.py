"""Noticing a client that leaves, on real connections to a real eventlet server."""

import eventlet
import eventlet.wsgi
import pytest
from eventlet.green import socket

from swift_hapi.middleware import client_watch
from swift_hapi.middleware.client_watch import ClientGone, ClientWatch


class Server:
    """Serves an app that waits in a :class:`ClientWatch` until it is told to go on."""

    def __init__(self):
        self.events: list[str] = []
        self.go_on = False
        self._listener = eventlet.listen(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._thread = eventlet.spawn(
            eventlet.wsgi.server, self._listener, self._app, log_output=False
        )

    def _app(self, env, start_response):
        if env["PATH_INFO"] == "/wait":
            with ClientWatch(env) as watch:
                watch.on_gone(lambda: self.events.append("aborted"))
                self.events.append("waiting")
                while not self.go_on and not watch.gone:
                    eventlet.sleep(0.01)
                self.events.append("gone" if watch.gone else "done")
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    def until(self, *events: str) -> None:
        with eventlet.Timeout(30):
            while self.events[-len(events) :] != list(events):
                eventlet.sleep(0.01)

    def close(self):
        self._thread.kill()
        self._listener.close()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


def connect(server):
    return socket.create_connection(server.address)


def answer(file) -> bytes:
    assert file.readline() == b"HTTP/1.1 200 OK\r\n"
    while file.readline() != b"\r\n":
        pass
    return file.read(2)


def test_a_client_that_leaves_is_noticed(server):
    client = connect(server)
    client.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
    server.until("waiting")
    client.close()
    server.until("aborted", "gone")


def test_a_client_that_stays_keeps_its_connection(server):
    client = connect(server)
    file = client.makefile("rb")
    for _ in range(3):
        server.go_on = False
        client.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        server.until("waiting")
        server.go_on = True
        assert answer(file) == b"ok"
        server.until("done")
    assert "aborted" not in server.events
    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer(file) == b"ok"


def test_pipelined_requests_are_not_eaten(server, monkeypatch):
    monkeypatch.setattr(client_watch, "PIPELINED_INTERVAL", 0.02)
    client = connect(server)
    file = client.makefile("rb")
    request = b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"
    client.sendall(request)
    server.until("waiting")
    client.sendall(request)  # lies unread in the connection now
    for _ in range(5):
        eventlet.sleep(0.02)
    assert server.events == ["waiting"]
    server.go_on = True
    assert answer(file) == b"ok"
    assert answer(file) == b"ok"
    server.until("waiting", "done", "waiting", "done")


def test_a_client_that_leaves_behind_a_pipelined_request_is_noticed(server, monkeypatch):
    monkeypatch.setattr(client_watch, "PIPELINED_INTERVAL", 0.02)
    client = connect(server)
    client.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
    server.until("waiting")
    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    client.close()
    server.until("aborted", "gone")


def test_who_asks_after_the_client_went_is_told(server):
    client, connection = socket.socketpair()

    class Input:
        def get_socket(self):
            return connection

    with ClientWatch({"eventlet.input": Input()}) as watch:
        watch.check()
        client.close()
        with eventlet.Timeout(30):
            while not watch.gone:
                eventlet.sleep(0.01)
        with pytest.raises(ClientGone):
            watch.check()
        with pytest.raises(ClientGone):
            watch.on_gone(lambda: None)
    connection.close()


def test_without_a_connection_nothing_is_watched():
    with ClientWatch({}) as watch:
        watch.on_gone(None)
        watch.check()
    assert watch.gone is False
