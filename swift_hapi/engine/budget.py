"""How much memory ``memory_budget`` means on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MemoryBudget:
    """``nbytes``, or ``share`` (0 to 1) of what the device has; the other one is 0."""

    nbytes: int = 0
    share: float = 0.0

    def resolve(self, available: int) -> int:
        """Bytes, where the device has ``available``."""
        return self.nbytes or int(self.share * available)

    def divided(self, parts: int) -> MemoryBudget:
        """One of several processes' equal part of a share; a number of bytes is for each."""
        return MemoryBudget(self.nbytes, self.share / parts)


def host_memory(cgroups: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes that this process may use: the machine's, or less where a cgroup says so."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([total, *_limits(cgroups, own)])


def _limits(cgroups: Path, own: Path) -> list[int]:
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2: one hierarchy, a limit at any level
            found += _upwards(cgroups, path, "memory.max")
        elif "memory" in controllers.split(","):
            found += _upwards(cgroups / "memory", path, "memory.limit_in_bytes")
    return found


def _upwards(root: Path, path: str, name: str) -> list[int]:
    found = []
    # Within a container the path may be that of the host, where nothing of it is visible but the
    # root.
    parts = [part for part in path.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        try:
            text = root.joinpath(*parts[:depth], name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    return found
