from swift_hapi.engine.control.plan import LaneView, solve
from swift_hapi.engine.control.types import LaneKey


def view(name, top, cost=10, *, floor=1, weight=0, accounts=None, digest=None, insists=False):
    key = LaneKey(digest or name, name, ())
    return LaneView(key, weight, 0, cost, floor, top, accounts or {name: top}, insists)


def sizes(plan):
    return {key.cut: size for key, size in plan.targets.items()}


def test_four_equal_requests_get_equal_shares():
    """Where the linear program gave 1000, 1000, 1000 and 57."""
    plan = solve(30_570, [view(name, 1000) for name in "abcd"])
    assert sorted(sizes(plan).values()) == [764, 764, 764, 765]
    assert plan.total == 30_570 and not plan.satisfied


def test_who_wants_little_gets_it_and_the_rest_is_shared():
    assert sizes(solve(1000, [view("a", 10), view("b", 90), view("c", 90)])) == {
        "a": 10,
        "b": 45,
        "c": 45,
    }


def test_memory_is_shared_in_bytes_not_in_samples():
    assert sizes(solve(1200, [view("thin", 1000, 5), view("fat", 1000, 20)])) == {
        "thin": 120,
        "fat": 30,
    }


def test_accounts_first_then_their_lanes():
    views = [view(name, 100, accounts={"one": 100}) for name in "abc"]
    views.append(view("d", 100, accounts={"two": 100}))
    assert sizes(solve(600, views)) == {"a": 10, "b": 10, "c": 10, "d": 30}


def test_a_lane_of_many_accounts_counts_for_each():
    shared = view("shared", 100, accounts={"one": 100, "two": 100, "three": 100})
    assert sizes(solve(800, [shared, view("own", 100, accounts={"four": 100})])) == {
        "shared": 60,
        "own": 20,
    }


def test_weights_count_once_for_a_digest():
    views = [view(name, 5, weight=500, digest="m") for name in "ab"]
    assert solve(600, views).total == 600
    assert set(sizes(solve(600, views))) == {"a", "b"}
    assert set(sizes(solve(600, [view(n, 5, weight=500) for n in "ab"]))) == {"a"}


def test_later_lanes_fill_the_gap_unless_one_insists():
    big = view("big", 50, floor=50)
    views = [view("first", 60, floor=60), big, view("small", 10)]
    plan = solve(1000, views)
    assert sizes(plan) == {"first": 60, "small": 10}
    assert [key.cut for key in plan.waiting] == ["big"]
    views[1] = view("big", 50, floor=50, insists=True)
    plan = solve(1000, views)
    assert set(sizes(plan)) == {"first"}
    assert plan.insisting.cut == "big"
    assert [key.cut for key in plan.waiting] == ["big", "small"]


def test_nobody_waits_for_a_lane_that_could_not_run_alone():
    views = [view("huge", 200, floor=200, insists=True), view("small", 10)]
    plan = solve(1000, views)
    assert sizes(plan) == {"small": 10} and plan.insisting is None


def test_floors_come_before_shares():
    assert sizes(solve(1000, [view("a", 100, floor=80), view("b", 100)])) == {"a": 80, "b": 20}


def test_no_more_lanes_than_allowed():
    plan = solve(1000, [view(name, 5) for name in "abc"], max_lanes=2)
    assert sizes(plan) == {"a": 5, "b": 5}
    assert not plan.satisfied


def test_nothing_to_do():
    plan = solve(0, [])
    assert plan.targets == {} and plan.satisfied and plan.total == 0
