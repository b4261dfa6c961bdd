"""Retries as a pure policy: bounded, typed, with full jitter, honouring ``Retry-After``.

Full jitter (a uniform draw between nothing and the exponential bound) spreads clients that were
turned away together; see "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from swift_hapi.protocol.errors import HapiError

T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how long one request may be repeated.

    :param attempts: tries in all, the first included
    :param base: seconds; bound of the first pause, doubled each time
    :param cap: seconds; upper bound of a drawn pause
    :param max_retry_after: seconds; a server that asks for a longer pause gets this one
    :param budget: seconds; no new try starts when pauses and tries have taken this long
    """

    attempts: int = 5
    base: float = 0.25
    cap: float = 8.0
    max_retry_after: float = 30.0
    budget: float = 120.0

    def __post_init__(self):
        if self.attempts < 1:
            raise ValueError(f"retry attempts={self.attempts}: want 1 or more")
        for name in ("base", "cap", "max_retry_after", "budget"):
            if getattr(self, name) < 0:
                raise ValueError(f"retry {name}={getattr(self, name)}: want 0 or more")

    def pause(self, failures: int, error: HapiError, draw: float) -> float:
        """Seconds to wait after the ``failures``-th failure in a row.

        :param draw: uniform in [0, 1)
        """
        jitter = draw * min(self.cap, self.base * 2 ** (failures - 1))
        if error.retry_after is None:
            return jitter
        # Everybody was told the same second: the jitter comes on top.
        return min(error.retry_after, self.max_retry_after) + jitter


class Stopped(HapiError):
    """The caller gave up while a request waited for its next try."""

    name = "stopped"


class Retrier:
    """Runs attempts under a policy.

    ``sleep(seconds)`` returns true to stop waiting for good, as ``threading.Event.wait`` does.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        sleep: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ):
        self.policy = policy
        self._sleep = sleep or threading.Event().wait
        self._clock = clock
        self._draw = draw

    def call(
        self,
        attempt: Callable[[], T],
        *,
        on_retry: Callable[[HapiError, float], None] = lambda error, pause: None,
        attempts: int | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> T:
        """``attempt()`` until it returns, fails for good, or the policy is exhausted.

        :param attempts: fewer (or more) tries than the policy's for this call
        :param sleep: in place of the retrier's own, for this call
        :raises HapiError: the last one, once it is not retryable or no try is left
        :raises Stopped: ``sleep`` said so
        """
        allowed = self.policy.attempts if attempts is None else attempts
        started = self._clock()
        failures = 0
        while True:
            try:
                return attempt()
            except HapiError as error:
                failures += 1
                if not error.retryable or failures >= allowed:
                    raise
                pause = self.policy.pause(failures, error, self._draw())
                if self._clock() - started + pause > self.policy.budget:
                    raise
                on_retry(error, pause)
                if (sleep or self._sleep)(pause):
                    raise Stopped("stopped while waiting for the next try") from error
