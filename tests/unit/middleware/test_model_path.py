"""X-Hapi-Model-Container, and where a model's object lies."""

import pytest

from swift_hapi.middleware.model_path import ModelPath
from swift_hapi.protocol.errors import BadHeader

DIGEST = "sha256:" + "ab" * 32


def path(header, reference=DIGEST):
    return ModelPath.of_request(reference, "v1", "AUTH_a", header, "hapi-models")


def test_default_container():
    found = path(None)
    assert found.quoted == f"/v1/AUTH_a/hapi-models/{'ab' * 32}.safetensors"
    assert found.hex == "ab" * 32
    assert found.may_be_operators


@pytest.mark.parametrize(
    ("header", "where"),
    [
        ("c", "AUTH_a/c"),
        (" c ", "AUTH_a/c"),
        ("AUTH_b/c", "AUTH_b/c"),
        ("AUTH_b/my%20c%C3%A4", "AUTH_b/my%20c%C3%A4"),
        ("100%25", "AUTH_a/100%25"),
        ("..c", "AUTH_a/..c"),
    ],
)
def test_named_containers(header, where):
    assert path(header).quoted == f"/v1/{where}/{'ab' * 32}.safetensors"
    assert path(header, "net").quoted == f"/v1/{where}/net.safetensors"


@pytest.mark.parametrize(
    "header",
    ["", " ", "/", "a/", "/c", "a/b/c", "a/%2F", "%2e%2e", "a/.", "a/%00c", "c%0a", "x" * 257],
)
def test_bad_containers(header):
    with pytest.raises(BadHeader, match="X-Hapi-Model-Container"):
        path(header)


def test_only_a_name_in_a_named_container_cannot_be_the_operators():
    assert path("c").may_be_operators
    assert path(None, "net").may_be_operators
    assert not path("c", "net").may_be_operators
    assert path("c", "net").hex is None
