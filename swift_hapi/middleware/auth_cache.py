"""A bounded memory with an expiry, for decisions that need not be asked again at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class ExpiringCache(Generic[T]):
    """Least recently used entries go first; none lives longer than ``lifetime``.

    For one worker process and its greenthreads: nothing here switches, so nothing is locked.

    :param size: most entries
    :param lifetime: seconds from :meth:`put` on; 0 remembers nothing
    :param clock: monotonic seconds
    """

    def __init__(self, size: int, lifetime: float, clock: Callable[[], float] = time.monotonic):
        self._size = size
        self._lifetime = lifetime
        self._clock = clock
        self._entries: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> T | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        expires, value = entry
        if self._clock() >= expires:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: Hashable, value: T) -> None:
        if self._lifetime <= 0:
            return
        self._entries[key] = (self._clock() + self._lifetime, value)
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def forget(self, key: Hashable) -> None:
        self._entries.pop(key, None)
