"""What a request and its lane take: arithmetic."""

from __future__ import annotations

import pytest

from swift_hapi.engine.control import LaneKey
from swift_hapi.engine.sizing import (
    BatchLimits,
    Footprint,
    bound,
    check_output,
    lane_spec,
    output_bytes,
)
from swift_hapi.protocol.errors import TooLarge
from swift_hapi.protocol.headers import FeatureRequest
from swift_hapi.protocol.limits import Limits

LIMITS = BatchLimits(least=4, most=32)
def request(**values) -> FeatureRequest:
    return FeatureRequest("m", "c", **values)


KEY = LaneKey("d", "c", (3, 8, 8))
FOOTPRINT = Footprint(input=10, output=5, activations=100, fixed=50)


def room_for(nbytes: int):
    """A node with room for so much."""

    def never(spec) -> str:
        sample = spec.activation_bytes + 2 * spec.decoded_bytes
        least = spec.weight_bytes + spec.workspace_bytes + spec.b_min * sample
        return "" if least <= nbytes else f"{least} are more than {nbytes}"

    return never


@pytest.mark.parametrize("asked, expected", [(None, 0), (8, 8), (32, 0), (64, 0)])
def test_a_limit_of_the_clients_own(asked, expected):
    assert bound(asked, LIMITS) == expected


def test_lane_with_room():
    spec, padded = lane_spec(KEY, 1000, FOOTPRINT, LIMITS, room_for(10_000))
    assert (spec.b_min, spec.b_max, padded) == (4, 32, 0)
    assert (spec.weight_bytes, spec.workspace_bytes) == (1000, 50)
    assert (spec.activation_bytes, spec.decoded_bytes) == (100, 10)


def test_the_clients_limit_is_the_lanes():
    spec, _ = lane_spec(LaneKey("d", "c", (3,), bound=2), 0, FOOTPRINT, LIMITS, room_for(10_000))
    assert (spec.b_min, spec.b_max) == (2, 2)


def test_less_than_the_least_rather_than_nothing():
    spec, _ = lane_spec(KEY, 1000, FOOTPRINT, LIMITS, room_for(1170))
    assert spec.b_min == 1


def test_not_even_one():
    with pytest.raises(TooLarge, match="one sample needs 110 bytes.*1170 are more than 1169"):
        lane_spec(KEY, 1000, FOOTPRINT, LIMITS, room_for(1169))


@pytest.mark.parametrize("room, rows", [(4890, 32), (4889, 16), (1170, 1)])
def test_fixed_rows_are_as_many_as_fit_and_all_are_paid_for(room, rows):
    fixed = BatchLimits(4, 32, fixed=True)
    spec, padded = lane_spec(KEY, 1000, FOOTPRINT, fixed, room_for(room + 1))
    assert (padded, spec.b_max, spec.b_min) == (rows, rows, 1)
    assert spec.workspace_bytes == 50 + rows * 120


def test_fixed_rows_not_even_one():
    with pytest.raises(TooLarge):
        lane_spec(KEY, 1000, FOOTPRINT, BatchLimits(4, 32, fixed=True), room_for(1170))


def test_output():
    limits = Limits(max_samples=10, max_output_bytes=50)
    check_output(10, Footprint(1, 5, 1), limits)
    with pytest.raises(TooLarge, match="10 samples of 6 bytes"):
        check_output(10, Footprint(1, 6, 1), limits)
    with pytest.raises(TooLarge, match="11 samples"):
        check_output(11, Footprint(1, 1, 1), limits)


def test_a_response_exists_again_in_another_form():
    plain = output_bytes(10, FOOTPRINT, request())
    assert plain >= 50
    assert output_bytes(10, FOOTPRINT, request(encoding="zstd")) == 2 * plain
    # The rows as computed, what they are made into, and that compressed.
    assert output_bytes(10, FOOTPRINT, request(dtype="float16")) == plain + plain // 2
    assert output_bytes(10, FOOTPRINT, request(dtype="int8", encoding="zstd")) == 3 * plain
    assert output_bytes(10, FOOTPRINT, request(dtype="uint8")) == plain
