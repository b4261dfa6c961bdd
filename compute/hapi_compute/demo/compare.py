"""Two training runs of the same work, side by side."""

from __future__ import annotations

from collections.abc import Sequence

#: Relative difference up to which two runs count as the same run.
RTOL = 1e-4


def largest_difference(ours: Sequence[float], reference: Sequence[float]) -> float:
    """Largest relative difference of two runs' losses, step by step.

    :raises ValueError: when the runs differ in their number of steps
    """
    if len(ours) != len(reference):
        raise ValueError(f"one run has {len(ours)} steps, the other {len(reference)}")
    return max(
        (abs(a - b) / max(abs(b), 1e-12) for a, b in zip(ours, reference, strict=True)),
        default=0.0,
    )


def table(reports: Sequence[dict]) -> str:
    """Accuracy, seconds, bytes and where the time went, a column for each run."""
    columns = [_column(report) for report in reports]
    names = list(columns[0])
    width = max(map(len, names))
    widths = [max(len(str(v)) for v in column.values()) for column in columns]
    lines = []
    for name in names:
        cells = "  ".join(
            f"{column.get(name, '-'):>{w}}" for column, w in zip(columns, widths, strict=True)
        )
        lines.append(f"  {name:<{width}}  {cells}")
    return "\n".join(lines)


def _column(report: dict) -> dict[str, str]:
    epochs, timings = report["epochs"], report["timings"]
    column = {
        "run": report["mode"],
        "cut": report["split"],
        "test accuracy": f"{report['test_accuracy']:.3f}",
        "last epoch's loss": f"{epochs[-1]['loss']:.4f}",
        "seconds, training": f"{sum(e['seconds'] for e in epochs):.1f}",
        "MB over the network, training": f"{sum(e['bytes_received'] for e in epochs) / 1e6:.1f}",
    }
    for stage, seconds in timings.items():
        if isinstance(seconds, int | float):
            column[f"seconds, {stage} (compute tier)"] = f"{seconds:.1f}"
    for stage, seconds in timings.get("storage", {}).items():
        column[f"seconds, {stage} (storage tier)"] = f"{seconds:.1f}"
    column["shards read raw after a failure"] = str(report.get("fallbacks", 0))
    return column
