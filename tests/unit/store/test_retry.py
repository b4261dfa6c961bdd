from __future__ import annotations

import pytest

from hapi_compute.store.errors import NotFound, Transient, Unreachable
from hapi_compute.store.retry import Retrier, RetryPolicy, Stopped


class Attempts:
    """Fails with each of ``errors`` in turn, then returns 'done'."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_pauses_double_up_to_the_cap_with_full_jitter():
    policy = RetryPolicy(base=1, cap=5)
    error = Unreachable("x")
    assert [policy.pause(n, error, 1.0) for n in (1, 2, 3, 4, 5)] == [1, 2, 4, 5, 5]
    assert policy.pause(3, error, 0.0) == 0
    assert policy.pause(3, error, 0.25) == 1


def test_retry_after_is_honoured_and_bounded():
    policy = RetryPolicy(base=1, max_retry_after=10)
    assert policy.pause(1, Transient("x", retry_after=7), 0.5) == 7.5
    assert policy.pause(1, Transient("x", retry_after=3600), 0.0) == 10


def test_retries_what_may_go_away():
    pauses, told = [], []
    retrier = Retrier(RetryPolicy(base=1), sleep=pauses.append, draw=lambda: 0.5)
    attempts = Attempts(Unreachable("a"), Transient("b"))
    assert retrier.call(attempts, on_retry=lambda e, p: told.append((str(e), p))) == "done"
    assert pauses == [0.5, 1.0]
    assert told == [("a", 0.5), ("b", 1.0)]


def test_gives_up_after_the_last_attempt():
    retrier = Retrier(RetryPolicy(attempts=3), sleep=lambda s: None)
    attempts = Attempts(*(Unreachable(str(n)) for n in range(9)))
    with pytest.raises(Unreachable, match="2"):
        retrier.call(attempts)
    assert attempts.calls == 3
    with pytest.raises(Unreachable):
        retrier.call(attempts, attempts=1)
    assert attempts.calls == 4


def test_permanent_errors_are_not_repeated():
    attempts = Attempts(NotFound("x"))
    with pytest.raises(NotFound):
        Retrier(RetryPolicy(), sleep=lambda s: pytest.fail("slept")).call(attempts)
    assert attempts.calls == 1


def test_no_try_starts_beyond_the_budget():
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    retrier = Retrier(
        RetryPolicy(attempts=100, base=4, cap=4, budget=10),
        sleep=sleep, clock=lambda: now[0], draw=lambda: 1.0,
    )  # fmt: skip
    attempts = Attempts(*(Unreachable(str(n)) for n in range(99)))
    with pytest.raises(Unreachable):
        retrier.call(attempts)
    assert attempts.calls == 3 and now[0] == 8


def test_a_sleeper_can_stop_the_wait():
    attempts = Attempts(Unreachable("x"))
    with pytest.raises(Stopped):
        Retrier(RetryPolicy()).call(attempts, sleep=lambda s: True)
    assert attempts.calls == 1


@pytest.mark.parametrize("bad", [{"attempts": 0}, {"base": -1}, {"budget": -0.1}])
def test_policies_are_checked(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        RetryPolicy(**bad)
