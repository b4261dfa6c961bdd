"""The requester's own GET, unread."""

import pytest

from swift_hapi.middleware.source import Source, inner_env, refuse_odd_queries
from swift_hapi.protocol.errors import BadHeader, SourceTruncated, TooLarge
from tests.unit.middleware.support import FakeSwift, Stored

ENV = {"REQUEST_METHOD": "GET", "PATH_INFO": "/v1/a/c/o", "QUERY_STRING": ""}


def source(**stored) -> tuple[Source, FakeSwift]:
    swift = FakeSwift()
    swift.objects["/v1/a/c/o"] = Stored(**stored)
    return Source(swift, dict(ENV)), swift


@pytest.mark.parametrize(
    ("sent", "etag"), [("abc", "abc"), ('"abc"', "abc"), (' W/"abc" ', "abc"), ("", None)]
)
def test_etags_lose_their_quotes(sent, etag):
    assert source(headers={"Etag": sent})[0].etag == etag


def test_the_limit_is_inclusive():
    found, _ = source(body=b"12345")
    assert found.require_length(5, "the object", "max_object_bytes") == 5
    with pytest.raises(TooLarge, match="the object has 5 bytes; max_object_bytes is 4"):
        found.require_length(4, "the object", "max_object_bytes")


def test_a_length_that_is_not_told_or_no_number():
    for value in ("", "x", "-1"):
        with pytest.raises(TooLarge, match="not known beforehand"):
            source(headers={"Content-Length": value})[0].require_length(5, "the object", "m")


def test_nothing_is_read_before_it_is_asked_for():
    pieces = iter([b"a", b"", b"b"])
    found, swift = source(headers={"Content-Length": "2"}, pieces=pieces)
    chunks = found.chunks()
    assert next(chunks) == b"a"
    assert list(pieces) == [b"", b"b"]
    with pytest.raises(SourceTruncated, match="1 are missing"):
        next(chunks)
    found.close()
    found.close()
    assert swift.open == 0


def test_large_bodies_are_closed_unread_and_small_ones_read():
    for length, left in ((1 << 20, 3), (10, 0)):
        pieces = iter([b"a", b"b", b"c"])
        found, swift = source(headers={"Content-Length": str(length)}, pieces=pieces)
        found.close()
        assert len(list(pieces)) == left
        assert swift.open == 0


def test_a_body_that_fails_while_it_is_let_go_of():
    def pieces():
        yield b"a"
        raise OSError("broken")

    found, swift = source(headers={"Content-Length": "5"}, pieces=pieces())
    found.close()
    assert swift.open == 0


def test_the_inner_environment_is_a_copy():
    env = {**ENV, "HTTP_RANGE": "bytes=0-1", "swift.infocache": {}, "HTTP_X_HAPI_MODEL": "m"}
    before = dict(env)
    inner = inner_env(env)
    inner["swift.authorize"] = None
    assert env == before
    assert inner["swift.infocache"] is env["swift.infocache"]
    assert "HTTP_RANGE" not in inner


def test_odd_queries():
    for query in ("multipart-manifest=get", "a=b&symlink=get", "part-number=3", "symlink"):
        with pytest.raises(BadHeader):
            refuse_odd_queries({"QUERY_STRING": query})
    refuse_odd_queries({"QUERY_STRING": "version-id=3&temp_url_sig=a"})
    refuse_odd_queries({})
