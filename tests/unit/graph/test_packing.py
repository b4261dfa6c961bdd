from __future__ import annotations

import numpy as np
import pytest

from swift_hapi.graph.packing import pack, unpack
from swift_hapi.protocol.wire import ARRAYS, Packed, ranges_shape

RNG = np.random.default_rng(5)


def rows(*shape, scale=3.0) -> np.ndarray:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def quantised(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One channel by the formula, in float64."""
    low, high = float(sample.min()), float(sample.max())
    scale = (high - low) / 255
    return np.rint((sample - low) / scale) - 128, np.array([scale, low + 128 * scale])


@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (3, 7, 9), (5, 12), (2, 3, 1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_round_trip(shape, dtype):
    x = rows(*shape)
    packed, bad = pack(x, dtype)
    assert bad == [] and packed.rows.dtype == ARRAYS[dtype]
    back = unpack(packed)
    assert back.dtype == np.float32 and back.shape == x.shape
    if dtype == "float32":
        assert np.shares_memory(back, x)
    elif dtype == "float16":
        np.testing.assert_array_equal(back, x.astype(np.float16).astype(np.float32))
    else:
        lead = ranges_shape(shape)
        flat = x.reshape(*lead, -1)
        half = (flat.max(-1) - flat.min(-1)) / 255 * 0.501
        assert (np.abs(back - x).reshape(flat.shape) <= half[..., None] + 1e-6).all()
    for at in range(len(x)):
        np.testing.assert_array_equal(unpack(packed, at), back[at])


def test_int8_is_the_formula():
    x = rows(2, 3, 40)
    packed, _ = pack(x, "int8")
    for n in range(2):
        for c in range(3):
            q, (scale, zero) = quantised(x[n, c].astype(np.float64))
            assert np.abs(packed.rows[n, c] - q).max() <= 1  # A tie may fall either way.
            assert packed.scale[n, c] == pytest.approx(scale, rel=1e-6)
            assert packed.zero[n, c] == pytest.approx(zero, rel=1e-5, abs=1e-6)
    assert packed.rows.min() == -128 and packed.rows.max() == 127


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_sample_does_not_depend_on_its_neighbours(dtype, monkeypatch):
    x = np.concatenate([rows(3, 4, 5), rows(3, 4, 5, scale=1000)])
    packed, _ = pack(x, dtype)
    monkeypatch.setattr("swift_hapi.graph.packing._SOME", 10)
    pieces, _ = pack(x, dtype)
    for at in range(6):
        alone, _ = pack(x[at : at + 1], dtype)
        for other in (alone.rows[0], pieces.rows[at]):
            np.testing.assert_array_equal(other, packed.rows[at])


def test_zeros_stay_zeros():
    x = np.maximum(rows(4, 8, 6, 6), 0)
    for dtype in ("float16", "int8"):
        assert (unpack(pack(x, dtype)[0])[x == 0] == 0).all()


def test_one_value_comes_back():
    x = np.full((2, 3, 4), 7.25, np.float32)
    np.testing.assert_array_equal(unpack(pack(x, "int8")[0]), x)


@pytest.mark.parametrize(
    ("dtype", "value", "fits"),
    [
        ("float16", 65504.0, True),
        ("float16", 65536.0, False),
        ("float16", -1e30, False),
        ("float16", np.inf, False),
        ("float16", np.nan, True),
        ("int8", 1e30, True),
        ("int8", np.nan, False),
        ("int8", -np.inf, False),
        ("float32", np.inf, True),
    ],
)
def test_what_does_not_fit_is_named(dtype, value, fits):
    x = rows(4, 3, 5)
    x[2, 1, 3] = value
    assert pack(x, dtype)[1] == ([] if fits else [2])


def test_a_range_beyond_float32_does_not_fit():
    x = np.array([[-3e38, 3e38], [0, 1]], np.float32)
    assert pack(x, "int8")[1] == [0]


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0), (0, 5), (2, 3, 0)])
def test_nothing(dtype, shape):
    packed, bad = pack(np.zeros(shape, np.float32), dtype)
    assert bad == [] and unpack(packed).shape == shape


def test_pixels_are_left_to_whoever_knows_mean_and_std():
    pixels = np.arange(12, dtype=np.uint8).reshape(1, 3, 2, 2)
    np.testing.assert_array_equal(unpack(Packed(pixels)), pixels.astype(np.float32))
