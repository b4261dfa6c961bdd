"""Bytes at each cut against the share of the computation done by then, as a picture."""

from __future__ import annotations

import os
from collections.abc import Sequence

from hapi_compute.models.cut_table import CutRow


def _bytes(row: CutRow) -> int:
    return row.wire["float32"] if "float32" in row.wire else row.wire["int64"]


def plot(rows: Sequence[CutRow], title: str, jpeg_bytes: int, path: str | os.PathLike) -> None:
    """Write a picture; its kind is that of the file name (.png, .svg, .pdf).

    :param jpeg_bytes: of one sample as it lies in the store: what a cut has to undercut
    :raises ValueError: matplotlib is not installed, or does not know the kind of file
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise ValueError("--plot needs the package matplotlib (extra 'plot')") from None
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
