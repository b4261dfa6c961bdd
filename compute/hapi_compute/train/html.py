"""The report of a run as one HTML file that needs nothing else: drawings are inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from hapi_compute.train.files import write_whole

NAME = "report.html"
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 640, 240, 64, 12, 34
_COLOURS = ("#1f6feb", "#d1652b", "#2f9e62", "#8b5cc4", "#b8912e", "#888888", "#c43d60")
#: at most so many points make a curve
_POINTS = 600
#: a matrix of more classes is left to the JSON
_MOST_CLASSES = 60
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c2024; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse } td, th { padding: .15rem .7rem; text-align: right }
th { font-weight: 600; border-bottom: 1px solid #bbb } td:first-child, th:first-child
{ text-align: left } .matrix td { padding: .1rem .35rem; font-size: 12px }
svg text { font: 12px system-ui, sans-serif; fill: #444 } .key { display: inline-block;
  width: .8em; height: .8em; margin: 0 .3em 0 1em }
"""


def write(out: Path, report: dict) -> None:
    """:param report: as :meth:`~hapi_compute.train.report.Report.to_dict` gives it"""
    write_whole(out / NAME, render(report).encode())


def render(report: dict) -> str:
    """The whole document."""
    title = f"{escape(report['model'])}: {_result(report)}"
    parts = [
        f"<h1>{title}</h1>",
        _facts(report),
        "<h2>Loss</h2>",
        _losses(report["step_losses"]),
        "<h2>Accuracy</h2>",
        _accuracies(report["epochs"]),
        "<h2>Epochs</h2>",
        _epochs(report["epochs"]),
        "<h2>Where the time went</h2>",
        _times(report),
    ]
    test = report["test"]
    if test is not None and test["confusion"] and len(test["confusion"]) <= _MOST_CLASSES:
        parts += ["<h2>Confusion on the test set</h2>", _matrix(test["confusion"], report)]
    parts += ["<h2>Plan</h2>", f"<p>{escape(report['plan']['reason'])}</p>"]
    return (
        "<!DOCTYPE html>\n<html lang='en'><meta charset='utf-8'>"
        f"<title>{title}</title><style>{_STYLE}</style>\n" + "\n".join(parts) + "\n</html>\n"
    )


def _result(report: dict) -> str:
    if report["test"] is not None:
        return f"test accuracy {report['test']['accuracy']:.4f}"
    best = [e["val_accuracy"] for e in report["epochs"] if "val_accuracy" in e]
    if best:
        return f"validation accuracy {max(best):.4f}"
    return f"loss {report['epochs'][-1]['loss']:.4f}"


def _facts(report: dict) -> str:
    facts = [
        f"split {report['split']}", f"{report['ranks']} ranks", f"{report['samples']} samples",
        f"{len(report['step_losses'])} steps", f"{report['bytes_received'] / 1e6:.2f} MB received",
        f"{report['fallbacks']} shards read raw instead", f"{report['retries']} retries",
    ]  # fmt: skip
    if report["best_epoch"] is not None:
        facts.append(f"weights of epoch {report['best_epoch']}")
    if report["test"] is not None:
        facts.append(f"test top-5 {report['test']['top5']:.4f}, loss {report['test']['loss']:.4f}")
    return f"<p>{escape(', '.join(facts))}</p>"


def _losses(losses: Sequence[float]) -> str:
    step = -(-len(losses) // _POINTS) if losses else 1
    points = []
    for first in range(0, len(losses), step):
        some = losses[first : first + step]
        points.append((first + len(some) / 2 + 0.5, sum(some) / len(some)))
    return _chart([("training, by step", points)], "step")


def _accuracies(epochs: Sequence[dict]) -> str:
    curves = []
    for name, field in (
        ("training", "accuracy"), ("training, top-5", "top5"),
        ("validation", "val_accuracy"), ("validation, top-5", "val_top5"),
    ):  # fmt: skip
        points = [(e["epoch"], e[field]) for e in epochs if field in e]
        if points:
            curves.append((name, points))
    return _chart(curves, "epoch", (0.0, 1.0))


def _chart(
    curves: Sequence[tuple[str, list[tuple[float, float]]]],
    axis: str,
    span: tuple[float, float] | None = None,
) -> str:
    """Curves over a common axis; ``span`` of the vertical one, by default what there is."""
    xs = [x for _, points in curves for x, _ in points]
    ys = [y for _, points in curves for _, y in points]
    low, high = span or (min(0.0, *ys, 0.0), max(ys) * 1.05 or 1.0)
    left, right = min(xs), max(xs)
    plot_w, plot_h = _WIDTH - _LEFT - 8, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> str:
        across = (x - left) / (right - left) if right > left else 0.5
        up = (y - low) / (high - low) if high > low else 0.0
        return f"{_LEFT + across * plot_w:.1f},{_TOP + (1 - up) * plot_h:.1f}"

    drawn = []
    for part in range(5):
        value = low + (high - low) * part / 4
        y = _TOP + plot_h * (1 - part / 4)
        drawn.append(
            f"<line x1='{_LEFT}' x2='{_WIDTH - 8}' y1='{y:.1f}' y2='{y:.1f}' stroke='#ddd'/>"
            f"<text x='{_LEFT - 6}' y='{y + 4:.1f}' text-anchor='end'>{value:.3g}</text>"
        )
    for number, (_, points) in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(place(x, y) for x, y in points)
        drawn.append(
            f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>"
        )
        if len(points) <= 40:
            for x, y in points:
                across, up = place(x, y).split(",")
                drawn.append(f"<circle cx='{across}' cy='{up}' r='3' fill='{colour}'/>")
    for value, anchor, x in (
        (left, "start", _LEFT), (right, "end", _WIDTH - 8), (axis, "middle", _LEFT + plot_w / 2)
    ):  # fmt: skip
        text = value if isinstance(value, str) else f"{value:.0f}"
        drawn.append(f"<text x='{x}' y='{_HEIGHT - 12}' text-anchor='{anchor}'>{text}</text>")
    return (
        f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img'>{''.join(drawn)}</svg><br>"
        + _keys([name for name, _ in curves])
    )


def _keys(names: Sequence[str]) -> str:
    return "".join(
        f"<span class='key' style='background:{_COLOURS[n % len(_COLOURS)]}'></span>{escape(name)}"
        for n, name in enumerate(names)
    )


def _epochs(epochs: Sequence[dict]) -> str:
    columns = (
        ("epoch", "epoch", "d"), ("loss", "loss", ".4f"), ("accuracy", "accuracy", ".4f"),
        ("top-5", "top5", ".4f"), ("validation", "val_accuracy", ".4f"),
        ("val. top-5", "val_top5", ".4f"), ("val. loss", "val_loss", ".4f"),
        ("seconds", "seconds", ".1f"), ("MB", "bytes_received", ""),
    )  # fmt: skip
    rows = []
    for epoch in epochs:
        cells = []
        for _, field, form in columns:
            value = epoch.get(field)
            if field == "bytes_received":
                value, form = value / 1e6, ".2f"
            cells.append("<td></td>" if value is None else f"<td>{value:{form}}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th>{name}</th>" for name, _, _ in columns)
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _times(report: dict) -> str:
    text = ""
    kinds = [(k, s) for k, s in report["seconds_by_kind"].items() if s > 0]
    total = sum(seconds for _, seconds in kinds)
    if total:
        x, bars = 0.0, []
        for number, (_, seconds) in enumerate(kinds):
            width = _WIDTH * seconds / total
            colour = _COLOURS[number % len(_COLOURS)]
            bars.append(f"<rect x='{x:.1f}' width='{width:.1f}' height='28' fill='{colour}'/>")
            x += width
        names = [f"{kind} {seconds:.1f} s" for kind, seconds in kinds]
        text = (
            f"<svg width='{_WIDTH}' height='28' role='img'>{''.join(bars)}</svg><br>"
            f"{_keys(names)}<p>Each moment of training counted once, as the first that holds of "
            "computing, receiving and decoding, waiting for the network, waiting for the store."
            "</p>"
        )
    storage = report["timings"]["storage"]
    steps = [(k, s) for k, s in report["timings"].items() if isinstance(s, int | float) and s]
    steps += [(f"{k} (storage tier)", s) for k, s in storage.items() if s]
    rows = "".join(f"<tr><td>{escape(k)}</td><td>{s:.2f}</td></tr>" for k, s in steps)
    return f"{text}<table><tr><th>step</th><th>seconds</th></tr>{rows}</table>"


def _matrix(confusion: Sequence[Sequence[int]], report: dict) -> str:
    """Rows are true classes, columns what the model said."""
    names = report["classes"]
    names = [names[n] if n < len(names) else str(n) for n in range(len(confusion))]
    head = "".join(f"<th title='{escape(name, quote=True)}'>{n}</th>" for n, name in
                   enumerate(names))  # fmt: skip
    rows = []
    for number, (name, row) in enumerate(zip(names, confusion, strict=True)):
        total = sum(row) or 1
        cells = []
        for told, count in enumerate(row):
            colour = "47,158,98" if told == number else "196,61,96"
            shade = f" style='background:rgba({colour},{count / total:.2f})'" if count else ""
            cells.append(f"<td{shade}>{count or ''}</td>")
        rows.append(f"<tr><td>{number} {escape(name)}</td>{''.join(cells)}</tr>")
    return (
        f"<table class='matrix'><tr><th>true \\ told</th>{head}</tr>{''.join(rows)}</table>"
    )
