from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapi_compute.store.names import SwiftUrl, object_path


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("a b", "a%20b"),
        ("100%.jpg", "100%25.jpg"),
        ("what?#", "what%3F%23"),
        ("a//b/", "a//b/"),
        ("../x", "../x"),
        ("\U0001f600", "%F0%9F%98%80"),
        ("line\nbreak", "line%0Abreak"),
        ("a+b&c=d", "a%2Bb%26c%3Dd"),
    ],
)
def test_names_are_quoted(name, quoted):
    assert object_path("c", name) == f"c/{quoted}"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_quoting_can_be_undone(name):
    assert unquote(object_path("c", name)) == f"c/{name}"


def test_container_is_quoted_and_checked():
    assert object_path("my photos?") == "my%20photos%3F"
    for bad in ("", "a/b"):
        with pytest.raises(ValueError, match="container"):
            object_path(bad)


def test_url_is_taken_literally():
    url = SwiftUrl.parse("swift://c x/a%20b/d?e")
    assert (url.container, url.prefix) == ("c x", "a%20b/d?e")
    assert url.name("s.tar") == "a%20b/d?e/s.tar"
    assert SwiftUrl.parse(str(url)) == url


def test_url_without_prefix():
    for text in ("swift://c", "swift://c/"):
        assert SwiftUrl.parse(text).name("x") == "x"


@pytest.mark.parametrize(
    "bad", ["c/p", "s3://c/p", "swift://", "swift:///p", "swift://" + "x" * 257]
)
def test_bad_urls(bad):
    with pytest.raises(ValueError):
        SwiftUrl.parse(bad)
