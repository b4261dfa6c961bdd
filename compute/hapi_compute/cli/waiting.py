"""Saying so when the store keeps one waiting."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from hapi_compute.store.retry import Retrier
from swift_hapi.protocol.errors import HapiError

T = TypeVar("T")

#: seconds that pass in silence
_PATIENCE = 4.0


class TellingRetrier(Retrier):
    """Says on stderr that it tries again, when that has taken a while."""

    def call(
        self,
        attempt: Callable[[], T],
        *,
        on_retry: Callable[[HapiError, float], None] = lambda error, pause: None,
        attempts: int | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> T:
        """See :meth:`Retrier.call`."""
        started = self._clock()

        def told(error: HapiError, pause: float) -> None:
            on_retry(error, pause)
            waited = self._clock() - started
            if waited >= _PATIENCE:
                print(
                    f"hapi: {error}; trying again after {waited:.0f} s (gives up after "
                    f"{self.policy.budget:.0f} s)",
                    file=sys.stderr,
                    flush=True,
                )

        return super().call(attempt, on_retry=told, attempts=attempts, sleep=sleep)


def retrier(clock: Callable[[], float] = time.monotonic) -> TellingRetrier:
    """One with the usual policy."""
    from hapi_compute.store.retry import RetryPolicy

    return TellingRetrier(RetryPolicy(), clock=clock)
