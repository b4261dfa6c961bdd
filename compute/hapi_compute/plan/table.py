"""A plan's candidates as text."""

from __future__ import annotations

_COLUMNS = (
    ("storage", "storage_s"),
    ("network", "network_s"),
    ("receive", "receive_s"),
    ("compute", "compute_s"),
    ("predicted", "predicted_s"),
    ("measured", "measured_s"),
)


def render(document: dict) -> str:
    """:param document: :meth:`hapi_compute.train.plan.Plan.to_dict`; times in ms per iteration"""
    lines = [["split", "bytes", *(title for title, _ in _COLUMNS), "decides"]]
    for row in document["candidates"]:
        mark = "* " if row["name"] == document["candidate"] else "  "
        size = row["bytes_per_sample"]
        lines.append(
            [
                mark + row["name"],
                "" if size is None else f"{size:,.0f}",
                *(_ms(row[key]) for _, key in _COLUMNS),
                row["bottleneck"],
            ]
        )
    text = [_aligned(lines)] if len(lines) > 1 else []
    text.append(f"{document['split']}: {document['reason']}")
    if document["bandwidth"] is not None:
        text.append(f"network {document['bandwidth'] / 1e6:.1f} MB/s; ms per iteration")
    profile = document["profile"]
    if profile:
        text.append(
            f"profiled with {profile['samples']} samples in {profile['seconds']:.1f} s; what was "
            "read and computed is part of the first epoch"
        )
    return "\n".join(text)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.1f}"


def _aligned(lines: list[list[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
