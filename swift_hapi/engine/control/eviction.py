"""Weights on a device: which are there, which may go."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Container


class Weights:
    """Resident weights, least recently used first. Those of running lanes are pinned."""

    def __init__(self):
        self._bytes: OrderedDict[str, int] = OrderedDict()
        self._pins: Counter[str] = Counter()
        self.total = 0

    def __contains__(self, digest: str) -> bool:
        return digest in self._bytes

    def __iter__(self):
        return iter(self._bytes)

    def add(self, digest: str, nbytes: int) -> None:
        """They are loaded, or will be before anything else happens with them."""
        if digest not in self._bytes:
            self._bytes[digest] = nbytes
            self.total += nbytes

    def drop(self, digest: str) -> None:
        """They are gone, or never came."""
        self.total -= self._bytes.pop(digest, 0)

    def pin(self, digest: str) -> None:
        self._bytes.move_to_end(digest)
        self._pins[digest] += 1

    def unpin(self, digest: str) -> None:
        self._pins[digest] -= 1
        if not self._pins[digest]:
            del self._pins[digest]

    def pinned(self, digest: str) -> bool:
        return digest in self._pins

    def _idle(self, keep: Container[str]):
        return (d for d in self._bytes if d not in self._pins and d not in keep)

    def evictable(self, keep: Container[str]) -> int:
        """Bytes that :meth:`evict` could free."""
        return sum(self._bytes[digest] for digest in self._idle(keep))

    def evict(self, nbytes: int, keep: Container[str]) -> list[str]:
        """Drop idle weights, least recently used first, until ``nbytes`` are freed."""
        gone = []
        for digest in list(self._idle(keep)):
            if nbytes <= 0:
                break
            nbytes -= self._bytes[digest]
            self.drop(digest)
            gone.append(digest)
        return gone
