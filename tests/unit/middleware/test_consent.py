"""Consent of the data's owner, and the client's own deadline."""

from __future__ import annotations

import pytest

from tests.unit.middleware.support import House, Stored

ACCOUNT, CONTAINER = "/v1/AUTH_test", "/v1/AUTH_test/c"


def answer_of(house: House, account: str | None, container: str | None) -> tuple[int, str]:
    """(status, problem) when account and container have that metadata."""
    meta = {"X-Account-Meta-Hapi": account} if account else {}
    house.swift.objects[ACCOUNT] = Stored(status="204 No Content", headers=meta)
    meta = {"X-Container-Meta-Hapi": container} if container else {}
    house.swift.objects[CONTAINER] = Stored(status="204 No Content", headers=meta)
    status, headers, _ = house.ask()
    if status == 200:
        return status, ""
    return status, house.problem()[1]


@pytest.mark.parametrize("meta", [None, "off"])
@pytest.mark.parametrize("opt_in", ["account", "container"])
def test_without_consent_nothing_is_computed(make_house, opt_in, meta):
    house = make_house(opt_in=opt_in)
    assert answer_of(house, meta, meta) == (403, "not-enabled")
    assert house.engine.requests == []
    assert house.swift.open == 0
    other = ("on", None) if opt_in == "container" else (None, "on")
    assert answer_of(house, *other) == (403, "not-enabled")


@pytest.mark.parametrize("opt_in", ["account", "container"])
def test_with_consent(make_house, opt_in):
    house = make_house(opt_in=opt_in)
    given = ("on", None) if opt_in == "account" else (None, "True")
    assert answer_of(house, *given) == (200, "")


def test_nobody_is_asked_by_default(make_house):
    house = make_house()
    assert answer_of(house, None, None) == (200, "")
    assert f"HEAD {CONTAINER}" not in house.swift.paths()


def test_who_may_not_read_is_not_told_about_consent(make_house):
    house = make_house(opt_in="container")
    house.swift.objects["/v1/AUTH_test/c/o"].status = "403 Forbidden"
    assert house.ask()[0] == 403
    assert f"HEAD {CONTAINER}" not in house.swift.paths()


def test_the_problem_names_the_header(make_house):
    house = make_house(opt_in="container")
    house.swift.objects[CONTAINER] = Stored(status="204 No Content")
    _, _, document = house.problem()
    assert "X-Container-Meta-Hapi" in document["detail"]
    assert document["retryable"] is False


def deadline_seen(house: House, value: str | None) -> float:
    status, _, _ = house.ask(headers={"X-Hapi-Deadline": value})
    assert status == 200
    found = {name.lower(): text for name, text in house.engine.requests[-1].headers.items()}
    return float(found["x-hapi-deadline"])


def test_the_client_may_ask_for_less_time_and_not_for_more(make_house):
    house = make_house(deadline=100.0)
    assert 90 < deadline_seen(house, None) <= 100
    assert 5 < deadline_seen(house, "7.5") <= 7.5
    assert 90 < deadline_seen(house, "5000") <= 100


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf"])
def test_bad_deadlines(make_house, value):
    house = make_house()
    status, name, document = house.problem(headers={"X-Hapi-Deadline": value})
    assert (status, name) == (400, "bad-header")
    assert "X-Hapi-Deadline" in document["detail"]
    assert house.swift.paths() == []
