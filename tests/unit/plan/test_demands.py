from __future__ import annotations

from dataclasses import replace

import pytest

from hapi_compute.plan.candidates import Candidate
from hapi_compute.plan.demands import ObjectProfile, StorageProfile, demands
from hapi_compute.plan.profile import ComputeProfile
from swift_hapi.graph.cuts import Cut

CUTS = [
    Cut(0, "input", (3, 8, 8), 10_000, True),
    Cut(1, "half", (4, 8, 8), 8_000, True),
    Cut(2, "deep", (25,), 100, True),
]
COMPUTE = ComputeProfile(
    {"input": 0.0, "half": 0.004, "deep": 0.010}, train=0.001, decode=0.003,
    squeezed={"input": 0.9, "half": 0.5, "deep": 1.0},
)  # fmt: skip
OBJECTS = ObjectProfile(
    bytes=50_000, latency=0.01, request=0.002, receive=1e-9, samples=8, bandwidth=1e7
)
STORAGE = StorageProfile("deep", service=0.026, inference=0.020, overhead=50)


def found(storage=STORAGE, encoding="identity"):
    candidates = [Candidate(None), *(Candidate(cut, encoding=encoding) for cut in CUTS)]
    sizes = {cut.name: cut.bytes for cut in CUTS}
    return demands(candidates, COMPUTE, OBJECTS, storage, sizes, threads=2, raw_threads=1)


def test_raw_does_everything_on_the_compute_tier():
    raw = found()["raw"]
    assert (raw.storage, raw.bytes, raw.decode, raw.threads) == (0.0, 50_000, 0.003, 1)
    assert raw.compute == pytest.approx(2 * 0.011)  # On one thread instead of two.
    assert raw.receive == pytest.approx(0.002 / 8 + 50_000e-9)


def test_the_probed_cut_takes_what_the_probe_took():
    deep = found()["deep"]
    assert deep.storage == pytest.approx(0.026)
    assert deep.compute == pytest.approx(0.001) and deep.decode == 0.0
    assert (deep.bytes, deep.threads) == (150, 2)


def test_other_cuts_are_scaled_by_the_ratio_of_the_tiers():
    # The storage tier is half as fast; a byte costs it twice what it costs here.
    assert STORAGE.ratio(COMPUTE) == pytest.approx(2)
    half = found()["half"]
    assert half.storage == pytest.approx(0.026 + 2 * (0.004 - 0.010) + 2e-9 * 7_900)
    assert half.compute == pytest.approx(0.007)
    start = found()["input"]
    assert start.storage == pytest.approx(0.006 + 2e-9 * 9_900)


def test_compression_saves_bytes_on_the_wire_alone():
    plain, squeezed = found()["half"], found(encoding="zstd")["half+zstd"]
    assert squeezed.bytes == 4_050 and plain.bytes == 8_050
    assert squeezed.receive == plain.receive


def test_pixels_are_normalised_here_and_hardly_get_smaller():
    pixels = Candidate(CUTS[0], "uint8", "zstd")
    sizes = {cut.name: cut.bytes for cut in CUTS} | {"input": 2_500}
    compute = replace(COMPUTE, normalise=0.0007)
    (demand,) = demands([pixels], compute, OBJECTS, STORAGE, sizes, 2, 1).values()
    assert demand.bytes == 2_550 and demand.decode == 0.0007


def test_without_a_storage_tier_there_is_raw():
    assert list(found(storage=None)) == ["raw"]


def test_noise_in_the_probe_makes_no_cut_free():
    odd = StorageProfile("deep", service=0.010, inference=0.010, overhead=0)
    assert all(demand.storage > 0 for name, demand in found(odd).items() if name != "raw")
