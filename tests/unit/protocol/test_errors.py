import json

import pytest

from swift_hapi.protocol import errors
from swift_hapi.protocol.errors import BY_NAME, HapiError, from_problem


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_problem_round_trip(name):
    error = BY_NAME[name]("what is wrong", retry_after=3, sample=4)
    document = json.loads(error.body())
    assert document["type"] == f"urn:hapi:error:{name}"
    back = from_problem(document, error.status, retry_after=3)
    assert type(back) is BY_NAME[name]
    assert (back.detail, back.status, back.retry_after) == ("what is wrong", error.status, 3)
    assert back.members["sample"] == 4


def test_own_members_cannot_be_overwritten():
    document = errors.BadCut("d", status=200, type="x").problem()
    assert document["status"] == 400 and document["type"] == "urn:hapi:error:bad-cut"


def test_foreign_documents_are_none():
    assert from_problem({"type": "about:blank"}, 404) is None
    assert from_problem("<html>", 404) is None


def test_unknown_name_is_still_typed():
    back = from_problem({"type": "urn:hapi:error:from-the-future", "detail": "d"}, 418)
    assert type(back) is HapiError and back.status == 418
