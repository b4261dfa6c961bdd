"""A plan's candidates as a picture: stages stacked, and the time of an overlapped iteration."""

from __future__ import annotations

import importlib.util
import os

_STAGES = (
    ("storage", "storage_s", "#4c72b0"),
    ("network", "network_s", "#dd8452"),
    ("receive and decode", "receive_s", "#55a868"),
    ("compute", "compute_s", "#c44e52"),
)


def check() -> None:
    """:raises ValueError: matplotlib is missing"""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("--plot needs matplotlib (extra 'plot')")


def draw(document: dict, path: str | os.PathLike) -> None:
    """:param document: :meth:`hapi_compute.train.plan.Plan.to_dict`
    :param path: of the PNG to write
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = document["candidates"]
    figure = Figure(figsize=(max(5.0, 1.1 * len(rows) + 2), 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    places = range(len(rows))
    below = [0.0] * len(rows)
    for title, key, colour in _STAGES:
        heights = [row[key] * 1e3 for row in rows]
        axes.bar(places, heights, bottom=below, label=title, color=colour, width=0.6)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.plot(
        places, [row["predicted_s"] * 1e3 for row in rows], "k_", markersize=30,
        label="predicted, overlapped",
    )  # fmt: skip
    measured = [(place, row["measured_s"]) for place, row in enumerate(rows) if row["measured_s"]]
    if measured:
        axes.plot(
            [place for place, _ in measured], [s * 1e3 for _, s in measured], "ko",
            label="measured",
        )  # fmt: skip
    names = [
        f"{row['name']}\n(chosen)" if row["name"] == document["candidate"] else row["name"]
        for row in rows
    ]
    axes.set_xticks(places, names, rotation=30, ha="right")
    axes.set_ylabel("ms per iteration")
    axes.set_title(f"network {document['bandwidth'] / 1e6:.1f} MB/s")
    axes.legend()
    figure.savefig(path, format="png", dpi=120)
