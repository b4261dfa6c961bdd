from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from hapi_compute.plan.candidates import Candidate
from hapi_compute.train import html
from hapi_compute.train.evaluate import Scores
from hapi_compute.train.plan import Plan
from hapi_compute.train.report import Report
from hapi_compute.train.state import EpochRecord


def report(**options) -> dict:
    epochs = [
        EpochRecord(n, 1 / (n + 1), 0.5, 2.0, 10**6, 3, 40, 0.4 + n / 10, 0.9, 1.0)
        for n in range(3)
    ]
    values = {
        "epochs": epochs,
        "step_losses": [3.0, 2.0, 1.0],
        "test": Scores(8, 0.75, 1.0, 0.5, [[3, 1], [1, 3]]),
        "classes": ["<cats>", "dogs & co"],
        "seconds_by_kind": {"compute": 3.0, "network": 1.0, "idle": 0.0},
        "timings": {"wait": 1.0},
    }
    return Report(Plan(Candidate(None), "a <reason>"), "net", 7, **values | options).to_dict()


class References(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("src", "href")]


def test_it_needs_nothing_else_and_escapes_what_it_shows():
    text = html.render(report())
    parser = References()
    parser.feed(text)
    assert parser.found == [] and "url(" not in text and "<script" not in text
    assert "&lt;cats&gt;" in text and "dogs &amp; co" in text and "a &lt;reason&gt;" in text
    assert "test accuracy 0.7500" in text
    drawings = re.findall(r"<svg.*?</svg>", text)
    assert len(drawings) == 3
    for drawing in drawings:
        ElementTree.fromstring(drawing)
    accuracy = ElementTree.fromstring(drawings[1])
    assert len(accuracy.findall("polyline")) == 4


@pytest.mark.parametrize(
    "options",
    [
        {"test": None, "step_losses": [1.0]},
        {"test": Scores(8, 0.75, 1.0, 0.5, None), "seconds_by_kind": {}},
        {"epochs": [EpochRecord(0)], "step_losses": [0.0] * 5000, "test": None},
    ],
)
def test_with_less_to_tell(options):
    text = html.render(report(**options))
    assert len(text) < 100_000 and "nan" not in text
