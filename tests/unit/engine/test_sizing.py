"""Micro-batches and memory: arithmetic."""

from __future__ import annotations

import pytest

from swift_hapi.engine.admission import Shares
from swift_hapi.engine.sizing import Footprint, check_output, micro_batch, work_memory
from swift_hapi.protocol.errors import TooLarge
from swift_hapi.protocol.limits import Limits

SHARES = Shares(objects=100, work=1000, activations=100)


@pytest.mark.parametrize(
    "asked, most, activations, input_, expected",
    [
        (None, 32, 1, 1, 32),
        (8, 32, 1, 1, 8),
        (64, 32, 1, 1, 32),
        (None, 32, 10, 1, 10),
        (4, 32, 10, 1, 4),
        (None, 32, 100, 1, 1),
        (None, 32, 0, 1, 32),
        (None, 32, 1, 25, 10),
        (None, 32, 1, 900, 1),
    ],
)
def test_micro_batch(asked, most, activations, input_, expected):
    assert micro_batch(asked, most, Footprint(input_, 1, activations), SHARES) == expected


def test_not_even_one():
    with pytest.raises(TooLarge, match="101"):
        micro_batch(None, 32, Footprint(1, 1, 101), SHARES)


def test_output():
    limits = Limits(max_samples=10, max_output_bytes=50)
    check_output(10, Footprint(1, 5, 1), limits)
    with pytest.raises(TooLarge, match="10 samples of 6 bytes"):
        check_output(10, Footprint(1, 6, 1), limits)
    with pytest.raises(TooLarge, match="11 samples"):
        check_output(11, Footprint(1, 1, 1), limits)


def test_work_memory_grows_with_what_is_really_there():
    footprint = Footprint(input=100, output=10, activations=1)
    assert work_memory(3, 32, footprint) < work_memory(4, 32, footprint)
    assert work_memory(64, 32, footprint) == 2 * 32 * 100 + 3 * 64 * 10
