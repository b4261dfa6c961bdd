from __future__ import annotations

from hapi_compute.plan.candidates import Candidate, dividing, enumerate_candidates
from swift_hapi.graph.cuts import Cut

CUTS = (
    Cut(0, "input", (3, 8, 8), 768, True),
    Cut(1, "wide", (9, 8, 8), 2304, False),
    Cut(2, "half", (4, 8, 8), 1024, False),
    Cut(3, "late", (4, 8, 8), 1024, False),
    Cut(4, "pool", (25,), 100, True),
    Cut(5, "end", (50,), 200, False),
)
SECONDS = {"input": 0.0, "wide": 1.0, "half": 5.0, "late": 7.4, "pool": 9.0, "end": 10.0}


def names(*args, **options) -> list[str]:
    return [each.name for each in enumerate_candidates(CUTS, *args, **options)]


def test_pareto_cuts_the_freeze_point_and_raw():
    assert names({}) == ["raw", "input", "pool", "end"]


def test_cuts_that_divide_the_work():
    assert [cut.name for cut in dividing(CUTS, SECONDS)] == ["half", "late"]
    assert names(SECONDS) == ["raw", "input", "half", "late", "pool", "end"]


def test_what_is_not_possible_is_left_out():
    assert names({}, pushdown=False) == ["raw"]
    assert names({}, raw=False) == ["input", "pool", "end"]


def test_dtypes_and_encodings_multiply():
    found = names({}, dtypes=("float32", "float16"), encodings=("identity", "zstd"))
    assert found[:5] == ["raw", "input", "input+zstd", "input+float16", "input+float16+zstd"]
    assert len(found) == 1 + 3 * 4


def test_names():
    assert Candidate(None).split == "raw"
    assert Candidate(CUTS[4], encoding="zstd").name == "pool+zstd"
    assert Candidate(CUTS[4], encoding="zstd").split == "pool"
