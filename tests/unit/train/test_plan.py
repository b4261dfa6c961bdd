from __future__ import annotations

import pytest

from hapi_compute.train.plan import choose
from swift_hapi.graph.cuts import Cut
from swift_hapi.protocol.errors import BadCut

CUTS = [
    Cut(0, "input", (3, 8, 8), 768, True),
    Cut(1, "conv", (9, 8, 8), 2304, False),
    Cut(2, "pool", (25,), 100, True),
]


def resolve(name):
    for cut in CUTS:
        if cut.name == name:
            return cut
    raise BadCut(name)


def plan(asked, raw=500.0, pushdown=True):
    return choose(asked, CUTS, resolve, raw, pushdown)


def test_fewest_bytes_win():
    assert plan("auto").cut is CUTS[2]
    chosen = plan("auto", raw=99.0)
    assert (chosen.cut, chosen.split, chosen.mode) == (None, "raw", "raw")
    assert plan("auto", raw=100.0).cut is None  # No gain, no push-down.
    assert plan("auto", raw=None).cut is CUTS[2]


def test_what_was_asked_for():
    assert plan("raw").cut is None
    chosen = plan("conv")
    assert (chosen.split, chosen.mode) == ("conv", "split")
    with pytest.raises(BadCut):
        plan("cnov")


def test_without_filter_everything_is_raw():
    for asked in ("auto", "conv", "raw"):
        assert plan(asked, pushdown=False).cut is None
    assert "no hapi filter" in plan("conv", pushdown=False).reason
    with pytest.raises(BadCut):  # A typing error is one everywhere.
        plan("cnov", pushdown=False)


def test_says_what_it_compared():
    document = plan("auto").to_dict()
    assert document["bytes_per_sample"] == {"input": 768, "pool": 100, "raw": 500}
    assert "pool" in document["reason"] and "100" in document["reason"]
