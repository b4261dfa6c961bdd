"""Bytes at each cut against the share of the computation done by then, as a picture."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from hapi_compute.models.cut_table import CutRow

KINDS = (".png", ".svg", ".pdf")


def check_plot(path: str | os.PathLike) -> None:
    """:raises ValueError: matplotlib is not installed, or this is no kind of picture we draw"""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("--plot needs the package matplotlib (extra 'plot')")
    if Path(path).suffix not in KINDS:
        raise ValueError(f"--plot: '{path}' should end in one of {' '.join(KINDS)}")


def _bytes(row: CutRow) -> int:
    return row.wire["float32"] if "float32" in row.wire else row.wire["int64"]


def plot(rows: Sequence[CutRow], title: str, jpeg_bytes: int, path: str | os.PathLike) -> None:
    """Write a picture; its kind is that of the file name, one of :data:`KINDS`.

    :param jpeg_bytes: of one sample as it lies in the store: what a cut has to undercut
    :raises ValueError: see :func:`check_plot`
    """
    check_plot(path)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    shares = [100 * row.time_share for row in rows]
    sizes = [_bytes(row) for row in rows]
    axes.scatter(shares, sizes, s=12, color="0.6", label="cuts, float32", zorder=2)
    pareto = [row for row in rows if row.pareto]
    for dtype, style in (("float32", "o-"), ("float16", "s--"), ("int8", "^:")):
        there = [row for row in pareto if dtype in row.wire]
        axes.plot(
            [100 * row.time_share for row in there],
            [row.wire[dtype] for row in there],
            style,
            label=f"Pareto cuts, {dtype}",
            zorder=3,
        )
    for row in pareto:
        axes.annotate(
            row.name,
            (100 * row.time_share, _bytes(row)),
            textcoords="offset points",
            xytext=(3, 5),
            fontsize=7,
        )
    axes.axhline(jpeg_bytes, color="tab:red", label=f"JPEG, {jpeg_bytes:,} bytes", zorder=1)
    axes.set(
        yscale="log",
        xlabel="share of the model's time spent before the cut, %",
        ylabel="bytes per sample",
        title=title,
    )
    axes.legend(fontsize=8)
    axes.grid(True, alpha=0.3)
    figure.savefig(path, dpi=120, metadata={"Software": None} if str(path).endswith("png") else {})
    pyplot.close(figure)
