"""What every benchmark writes: the machine, cases and a summary, as JSON and as a table."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def machine() -> dict:
    """The machine and the versions that decide its speed."""
    model = ""
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    versions = {}
    for package in ("swift", "torch", "torchvision", "timm", "Pillow", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        **versions,
    }


def percentile(values: Sequence[float], q: float) -> float:
    """Nearest-rank percentile, q in [0, 100]; NaN of nothing."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    rank = math.ceil(len(ordered) * q / 100)
    return ordered[max(rank, 1) - 1]


def write_json(path: str | None, name: str, cases: list[dict], summary: dict) -> None:
    """Write ``{name, machine, cases, summary}``; nothing when ``path`` is None."""
    if path is None:
        return
    document = {"name": name, "machine": machine(), "cases": cases, "summary": summary}
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document, indent=1) + "\n")


def table(rows: Sequence[dict]) -> str:
    """Rows with equal keys as aligned text."""
    if not rows:
        return "(nothing)"
    cells = [list(rows[0])] + [[_cell(value) for value in row.values()] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return "\n".join(
        "  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))
        for line in cells
    )


def _cell(value) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
