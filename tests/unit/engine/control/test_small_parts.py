"""Clock, weights, gates, lanes and placement, each alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_hapi.engine.control.admission import Gate
from swift_hapi.engine.control.eviction import Weights
from swift_hapi.engine.control.fairness import AccountClock
from swift_hapi.engine.control.lanes import Flight, Lane, even
from swift_hapi.engine.control.placement import Offer, choose
from swift_hapi.engine.control.queueing import Job
from swift_hapi.engine.control.types import ControlConfig, DeviceSpec, LaneKey, LaneSpec, Ticket
from tests.unit.engine.control.support import spec


def test_who_idled_cannot_claim_the_past():
    clock = AccountClock()
    clock.enter("busy")
    clock.charge({"busy": 10.0})
    clock.enter("new")
    assert clock["busy"] == clock["new"] == 10.0


def test_leaving_and_coming_back_does_not_wipe_the_bill():
    clock = AccountClock()
    for name in ("a", "b"):
        clock.enter(name)
    clock.charge({"a": 5.0})
    clock.leave("a")
    clock.enter("a")
    assert clock["a"] == 5.0 and clock.first(["a", "b"]) == 0.0
    clock.charge({"b": 8.0})
    clock.enter("c")
    assert clock["c"] == 5.0


def test_an_idle_node_forgets():
    clock = AccountClock()
    clock.enter("a")
    clock.charge({"a": 5.0})
    clock.leave("a")
    clock.enter("b")
    assert clock["a"] == clock["b"] == 0.0


def test_estimates_are_corrected():
    clock = AccountClock()
    clock.enter("a")
    clock.charge({"a": 5.0})
    clock.charge({"a": -3.0, "unknown": 1.0})
    assert clock["a"] == 2.0 and clock["unknown"] == 0.0


def test_least_recently_used_weights_go_first_and_pinned_ones_never():
    weights = Weights()
    for name in "abcd":
        weights.add(name, 10)
    for name in "ab":
        weights.pin(name)
    weights.unpin("a")
    assert weights.evictable(keep={"c"}) == 20
    assert weights.evict(15, keep={"c"}) == ["d", "a"]
    assert weights.evict(100, keep=()) == ["c"]
    assert list(weights) == ["b"] and weights.total == 10


def job(name, account):
    return Job(Ticket(name, account, 0))


def test_an_account_holds_no_more_than_it_leaves():
    gate = Gate(100, 50)
    gate.hold("hog", 40)
    assert gate.allows("hog", 10) and not gate.allows("hog", 11)
    gate.hold("hog", 10)
    assert gate.allows("guest", 50) and gate.has(50) and not gate.has(51)


def test_an_account_leaves_places_too():
    gate = Gate(100, 4)
    gate.hold("hog", 1)
    gate.hold("hog", 1)
    assert not gate.allows("hog", 1) and gate.allows("guest", 1)
    gate.release("hog", 1)
    gate.leave("hog")
    assert gate.allows("hog", 1)


def test_the_waiting_room_goes_round_accounts_and_past_the_greedy():
    gate = Gate(100, 50)
    gate.hold("hog", 50)
    for name, account in (("h1", "hog"), ("h2", "hog"), ("g1", "guest"), ("f1", "friend")):
        gate.join(job(name, account), 20)
    order = []
    while (head := gate.head()) is not None:
        order.append(head[0].ticket.id)
        gate.quit(head[0], served=True)
    assert order == ["g1", "f1"] and gate.waiting == 2 and gate.waiting_bytes == 40
    gate.release("hog", 50)
    gate.leave("hog")
    assert gate.head()[0].ticket.id == "h1"


def test_the_head_is_not_overtaken_by_smaller_demands():
    gate = Gate(100, 50)
    gate.hold("x", 60)
    big = job("big", "a")
    gate.join(big, 50)
    gate.join(job("small", "b"), 1)
    assert gate.head()[0] is big and not gate.has(50)


def test_a_gate_takes_one_oversize_demand_when_empty():
    gate = Gate(100, 50, oversize=True)
    assert gate.has(500)
    gate.join(job("big", "a"), 500)
    assert gate.pending() == 500
    gate.hold("x", 1)
    assert not gate.has(500)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 20)), max_size=3),
    st.integers(0, 400),
    st.integers(0, 30),
    st.integers(1, 20),
    st.integers(0, 5),
)
def test_fit_is_the_largest_that_fits(running, free, workspace, activation, decoded):
    lane = Lane(
        spec(workspace_bytes=workspace, activation_bytes=activation, decoded_bytes=decoded), 2, 0
    )
    for number, (size, believed) in enumerate(running):
        lane.flights[number] = Flight([], size, believed, {})

    def grown(size):
        before = lane.reserved
        lane.flights[99] = Flight([], size, activation, {})
        after = lane.reserved
        del lane.flights[99]
        return after - before

    fit = lane.fit(free)
    assert fit == 0 or grown(fit) <= free
    if fit or grown(1) > free:
        assert grown(fit + 1) > free or (decoded == 0 and (fit + 1) * activation <= 0)


def test_a_shrunk_lane_grows_back_slowly():
    lane = Lane(spec(b_max=32), 1, 0)
    lane.failed(32, 1.25)
    assert lane.cap == 16 and lane.activation_bytes == 13
    changes = [lane.succeeded(lane.cap, 4) for _ in range(8)]
    assert changes == [False, False, False, True] * 2
    assert lane.cap == 25
    for _ in range(100):
        lane.succeeded(lane.cap, 4)
    assert lane.cap == 32


def test_small_batches_say_nothing_about_large_ones():
    lane = Lane(spec(b_max=32), 1, 0)
    lane.failed(32, 1.25)
    assert not any(lane.succeeded(8, 1) for _ in range(10))
    assert lane.cap == 16


def test_a_measured_peak_raises_the_model_at_once_and_lowers_it_slowly():
    lane = Lane(spec(workspace_bytes=50, activation_bytes=100), 1, 0)
    lane.measured(4, 1.0, 50 + 4 * 150)
    assert lane.activation_bytes == 150
    lane.measured(4, 1.0, 50 + 4 * 100)
    assert 100 < lane.activation_bytes < 150


def test_placement():
    assert choose([]) is None
    busy, empty = Offer(0, 9.0, 0.0, True), Offer(1, 1.0, 2.0, True)
    assert choose([busy, empty]) == 1
    assert choose([Offer(0, 2.0, 0.0, True), empty]) == 0
    assert choose([Offer(0, 0.0, 0.0, False), busy]) == 0
    assert choose([Offer(0, 0.0, 0.0, False), empty]) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: DeviceSpec("d", 0),
        lambda: DeviceSpec("d", 1, 0),
        lambda: ControlConfig(depth=0),
        lambda: ControlConfig(input_share=1.0),
        lambda: ControlConfig(batch_wait=-1),
        lambda: ControlConfig(failure_growth=0.5),
        lambda: LaneSpec(LaneKey("m", "x", ()), 0, 0, 0),
        lambda: LaneSpec(LaneKey("m", "x", ()), 0, 0, 1, b_min=4, b_max=2),
        lambda: LaneSpec(LaneKey("m", "x", ()), 0, 0, 1, sample_seconds=0),
    ],
)
def test_senseless_values_are_refused(make):
    with pytest.raises(ValueError):
        make()


def timed(seconds_each: float, size: int = 32, times: int = 8) -> Lane:
    lane = Lane(spec(b_min=4, b_max=32, sample_seconds=seconds_each), 1, 0, batch_seconds=0.4)
    for _ in range(times):
        lane.measured(size, size * seconds_each, None)
    return lane


@pytest.mark.parametrize(
    "seconds_each, limit",
    [(0.001, 32), (0.0125, 32), (0.02, 16), (0.03, 12), (0.09, 4), (0.9, 4), (1.9, 2), (9.0, 1)],
)
def test_a_micro_batch_takes_no_longer_than_it_should(seconds_each, limit):
    assert timed(seconds_each).limit == limit


def test_the_first_micro_batch_of_a_lane_is_one_sample():
    lane = Lane(spec(b_min=4, b_max=32), 2, 0, batch_seconds=0.4)
    assert (lane.limit, lane.least, lane.floor) == (1, 1, 4)
    lane.measured(1, 1e-6, None, whole=False)  # it was given up: that tells nothing
    assert lane.limit == 1
    lane.measured(1, 0.01, None)
    assert (lane.limit, lane.least) == (32, 4)
    lane.measured(32, 1e-3, None, whole=False)
    assert lane.sample_seconds == pytest.approx(0.01)
    known = [spec(b_min=4, b_max=32, most_seconds=most) for most in (0.0, 1.0, 100.0)]
    assert [Lane(each, 2, 0, batch_seconds=0.4).limit for each in known] == [32, 4, 1]


def test_padded_micro_batches_stay_as_large_as_they_are():
    lane = Lane(spec(b_max=32, padded=True), 2, 0, batch_seconds=0.4)
    assert lane.limit == 32
    for _ in range(8):
        lane.measured(1, 5.0, None)
    assert lane.limit == 32


def test_one_stutter_counts_for_little():
    lane = timed(0.01)
    lane.measured(32, 32 * 0.05, None)  # by itself it would allow 8
    assert lane.limit == 16
    for _ in range(8):
        lane.measured(lane.limit, lane.limit * 0.01, None)
    assert lane.limit == 32
    slow = timed(0.05)
    assert slow.limit == 8
    slow.measured(8, 8 * 0.001, None)
    assert slow.limit == 8


def test_a_lane_that_gets_faster_gets_larger_micro_batches():
    lane = timed(0.05)
    for _ in range(20):
        lane.measured(lane.limit, lane.limit * 0.01, None)
    assert lane.limit == 32


def test_memory_may_say_less_than_time():
    lane = timed(0.001)
    lane.failed(16, 1.25)
    assert lane.limit == 8


def test_what_would_make_a_batch_odd_is_left_to_the_next():
    assert [even(size, 64) for size in (1, 7, 15, 16, 20, 31, 32, 40)] == [
        1, 7, 15, 16, 16, 16, 32, 32,
    ]  # fmt: skip
    # Nothing is left behind for its own sake.
    assert even(20, 20) == 20 and even(40, 40) == 40
