from __future__ import annotations

import itertools

import pytest

from hapi_compute.cli.waiting import TellingRetrier
from hapi_compute.store.errors import Unreachable
from hapi_compute.store.retry import RetryPolicy


def retrier(seconds: float) -> TellingRetrier:
    """Between two looks at its clock pass so many seconds."""
    ticks = itertools.count(0.0, seconds)
    return TellingRetrier(
        RetryPolicy(attempts=3), clock=lambda: next(ticks), sleep=lambda pause: False
    )


def fail():
    raise Unreachable("GET /v1/a: timed out")


def test_a_long_wait_is_told_on_stderr(capsys):
    seen = []
    with pytest.raises(Unreachable):
        retrier(10).call(fail, on_retry=lambda error, pause: seen.append(str(error)))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(seen) == 2
    assert lines[0].startswith("hapi: GET /v1/a: timed out; trying again after ")
    assert "gives up after 120 s" in lines[0]


def test_a_short_one_is_not(capsys):
    with pytest.raises(Unreachable):
        retrier(0.01).call(fail)
    assert capsys.readouterr().err == ""


def test_every_command_has_it():
    from hapi_compute.cli import options
    from hapi_compute.cli.main import build_parser

    argv = ["ls", "--auth-url", "http://a", "--user", "u", "--key", "k"]
    client = options.client(build_parser("ls").parse_args(argv))
    assert isinstance(client.retrier, TellingRetrier)
