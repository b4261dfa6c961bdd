from __future__ import annotations

from hapi_compute.plan.candidates import (
    Candidate,
    candidate_at,
    dividing,
    enumerate_candidates,
)
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


def test_features_travel_as_is_wanted():
    def candidate(cut):
        return candidate_at(cut, "float16", "zstd", images=True)

    found = enumerate_candidates(CUTS, {}, candidate)
    assert [each.name for each in found] == [
        "raw", "input+zstd", "pool+float16+zstd", "end+float16+zstd",
    ]  # fmt: skip
    assert [each.bytes for each in found[1:]] == [192, 50, 100]


def test_decoded_images_travel_as_pixels():
    whole = candidate_at(CUTS[0], "float32", "identity", images=True)
    assert (whole.dtype, whole.name, whole.bytes) == ("uint8", "input", 192)
    arrays = candidate_at(CUTS[0], "float32", "identity", images=False)
    assert (arrays.dtype, arrays.name, arrays.bytes) == ("float32", "input", 768)
    # A range for each of the four channels.
    assert candidate_at(CUTS[2], "int8", "identity", images=True).bytes == 256 + 4 * 8


def test_names():
    assert Candidate(None).split == "raw"
    assert Candidate(CUTS[4], encoding="zstd").name == "pool+zstd"
    assert Candidate(CUTS[4], encoding="zstd").split == "pool"
