import pytest

from swift_hapi.engine.control import Answer, Pause, Ticket
from tests.unit.engine.control.support import World, spec


def test_small_requests_share_a_micro_batch_and_keep_their_order():
    world = World()
    for i in range(6):
        world.must(f"r{i}", spec(), 1, account=f"a{i % 2}")
    (batch,) = world.start()
    assert batch.size == 6 and batch.load
    assert world.finish() == [part.request for part in batch.parts]


def test_one_request_does_not_wait_for_a_hundred():
    world = World(places=256, room=256)
    for i in range(100):
        world.must(f"r{i}", spec(), 8, account="hog")
    world.start()
    world.must("guest", spec(), 1)
    world.run()
    assert world.ended["guest"] <= 2 * 8
    assert len(world.ended) == 101


def test_one_request_on_another_lane_does_not_wait_either():
    world = World(max_lanes=1, places=256, room=256, turn_batches=1)
    for i in range(20):
        world.must(f"r{i}", spec("common"), 8, account="hog")
    world.start()
    world.must("guest", spec("rare"), 1)
    world.run()
    assert world.ended["guest"] <= 2 * 8 + 1


def test_two_accounts_get_equal_service_from_unequal_lanes():
    world = World(max_lanes=1, turn_batches=1)
    world.must("one", spec("slow", b_max=8), 400)
    world.must("two", spec("fast", b_max=2), 400)
    world.run(most=80)
    service = {"slow": 0, "fast": 0}
    for batch in world.batches:
        service[batch.lane.digest] += batch.size
    assert abs(service["slow"] - service["fast"]) <= 8


def test_a_partly_filled_batch_waits_briefly_while_the_device_is_busy():
    world = World(batch_wait=0.5, depth=2)
    world.must("a", spec(), 8)
    world.start()
    world.must("b", spec(), 1)
    assert world.start() == []
    assert world.controller.next_batch(0, 0.1) == Pause(0.5)
    world.must("c", spec(), 7)
    assert [batch.size for batch in world.start()] == [8]
    world.now = 1.0
    world.finish()
    world.must("d", spec(), 1)
    world.now += 0.5
    assert [batch.size for batch in world.start()] == [1]


def test_an_idle_device_waits_only_for_what_is_on_its_way():
    world = World(batch_wait=0.5)
    world.must("a", spec(), 1)
    assert [batch.size for batch in world.start()] == [1]
    world.finish()
    ticket = Ticket("coming", "b", 0, digest="m")
    assert world.controller.offer(ticket).answer is Answer.ADMITTED
    world.must("c", spec(), 1)
    pause = world.controller.next_batch(0, world.now)
    assert pause == Pause(world.now + 0.5)
    world.controller.enqueue("coming", spec(), 1, 0, world.now)
    world.controller.depart("coming", world.now)
    assert [batch.size for batch in world.start()] == [1]


def test_bytes_are_admitted_later_or_never():
    world = World(1000, room=1)
    lane = spec()
    assert world.submit("huge", lane, 1, size=251).answer is Answer.NEVER
    assert "251 bytes" in world.submit("huge", lane, 1, size=251).reason
    assert world.submit("wide", lane, 1, output=700).answer is Answer.NEVER
    world.must("a", lane, 8, size=200)
    world.start()
    waits = world.submit("b", lane, 8, size=100)
    assert waits.answer is Answer.WAITING and 0 < waits.retry_after <= 8
    later = world.submit("c", lane, 8, size=100)
    assert later.answer is Answer.LATER and later.retry_after > waits.retry_after
    assert world.events() == []
    world.finish()
    assert world.events() == [("admitted", "b")]
    assert world.controller.admitted("b")
    world.controller.enqueue("b", lane, 8, 0, world.now)
    world.run()
    assert set(world.ended) == {"a", "b"}
    assert world.used == 100  # the weights stay


def test_output_memory_is_waited_for_without_blocking_who_has_it():
    world = World(1000)
    world.must("a", spec(), 8, output=200)
    assert world.submit("b", spec(), 8, output=200).answer is Answer.WAITING
    world.start()
    world.finish()
    assert world.events() == [("seated", "b")]
    world.run()
    assert set(world.ended) == {"a", "b"}


def test_input_bytes_can_be_given_back_early():
    world = World(1000)
    world.must("a", spec(), 80, size=250)
    assert world.submit("b", spec(), 1, size=250).answer is Answer.WAITING
    world.controller.release_input("a", world.now)
    world.controller.release_input("a", world.now)
    assert world.events() == [("admitted", "b")]


def test_idle_weights_make_way_least_recently_used_first():
    world = World(1000)
    for name in "abc":
        world.must(name, spec(name, weight_bytes=250), 1)
        world.start()
        world.finish()
    world.must("again", spec("a", weight_bytes=250), 1)
    world.start()
    world.finish()
    world.events()
    world.must("d", spec("d", weight_bytes=400), 1)
    world.start()
    assert world.events() == [("evict", "b")]
    world.must("big", spec("a", weight_bytes=250), 1, size=200)
    assert world.events() == [("evict", "c")]


def test_lanes_that_do_not_fit_together_take_turns_without_thrashing():
    world = World(1000, turn_seconds=32.0, turn_batches=100)
    for name in "abc":
        world.must(name, spec(name, weight_bytes=600), 160)
    world.run()
    loads = [batch.lane.digest for batch in world.batches if batch.load]
    assert len(world.ended) == 3 and set(loads[:3]) == set("abc")
    assert len(loads) == 3 * 160 / 32


def test_an_allocation_failure_shrinks_and_then_grows_back():
    world = World(grow_after=2)
    world.must("a", spec(b_max=16), 400)
    world.start()
    world.fail()
    assert [batch.size for batch in world.start()] == [8]
    world.fail()
    world.run()
    sizes = [batch.size for batch in world.batches]
    assert sizes[:3] == [16, 8, 4]
    assert sizes[3:-1] == sorted(sizes[3:-1]) and sizes[-2] == 16
    assert world.ended.keys() == {"a"}


def test_a_single_sample_that_fails_runs_alone_and_is_given_up_at_last():
    world = World(single_tries=2)
    world.must("bad", spec("bad", b_max=1), 2)
    world.must("good", spec("good", b_max=1), 3)
    first = world.start()
    assert len(first) == 2
    assert world.fail(next(b for b in first if b.lane.digest == "bad")) == []
    assert world.start() == []  # it waits until the device is empty
    world.finish()
    lost = []
    for _ in range(20):
        for batch in world.start():
            if batch.lane.digest == "bad":
                assert world.flights == [batch]
        if not world.flights:
            break
        if world.flights[0].lane.digest == "bad":
            lost += world.fail()
        else:
            world.finish()
    assert lost == ["bad"] and set(world.ended) == {"good"}
    world.controller.depart("bad", world.now)
    assert world.controller.snapshot()[0]["admitted"] == 0


def test_a_memory_model_that_turns_out_far_too_small_sheds_and_goes_on():
    world = World(1000)
    lane = spec(activation_bytes=10)
    for name in ("a", "b", "c"):
        world.must(name, lane, 4, size=80, output=80)
    world.controller.calibrate(0, lane.key, 600)
    assert world.start() == []
    assert world.events() == [("shed", "c"), ("shed", "b")]
    assert world.start() == []
    assert world.events() == []
    for name in ("b", "c"):
        world.controller.depart(name, world.now)
    world.run()
    assert set(world.ended) == {"a"}


def test_who_waits_for_output_is_shed_when_it_can_no_longer_run():
    world = World(1000)
    world.must("a", spec("a"), 8, output=200)
    lane = spec("b")
    assert world.submit("b", lane, 8, output=200).answer is Answer.WAITING
    world.controller.calibrate(0, lane.key, 600)
    world.run()
    assert world.events() == [("shed", "b")]
    world.controller.depart("b", world.now)
    assert set(world.ended) == {"a"} and world.used == 100


def test_departure_in_flight_keeps_the_bytes_until_the_batch_ends():
    world = World()
    world.must("a", spec(), 16, size=30, output=50)
    world.start()
    held = world.used
    world.controller.depart("a", world.now)
    world.controller.depart("a", world.now)
    assert world.used == held
    assert world.finish() == []
    assert world.used == 100 and world.start() == []


def test_deadlines_drop_what_waits():
    world = World(max_lanes=1)
    world.must("a", spec("a"), 16)
    world.must("b", spec("b"), 16, deadline=5)
    world.start()
    world.now = 6.0
    world.controller.expire(world.now)
    assert world.events() == [("expired", "b")]
    world.controller.depart("b", world.now)
    world.controller.expire(world.now)
    world.run()
    assert set(world.ended) == {"a"} and world.events() == []


def test_requests_go_where_the_weights_are_until_that_takes_longer():
    world = World(devices=2, load_rate=100 / 10.0)  # ten seconds to load the weights
    lane = spec()
    placed = [world.submit(f"r{i}", lane, 8).device for i in range(4)]
    assert placed == [0, 0, 1, 0] or placed == [0, 0, 1, 1]


def test_a_status_page_is_plain_data():
    world = World()
    world.must("a", spec(), 16, size=30)
    world.start()
    (device,) = world.controller.snapshot()
    assert device["used_bytes"] == 30 + 100 + 80 and device["expected_seconds"] == 16
    (lane,) = device["lanes"]
    assert (lane["target"], lane["waiting"], lane["running"], lane["accounts"]) == (8, 8, 8, 1)


def test_misuse_is_an_error():
    world = World()
    world.must("a", spec(), 1)
    with pytest.raises(ValueError):
        world.controller.offer(Ticket("a", "x", 0))
    with pytest.raises(ValueError):
        world.controller.enqueue("a", spec(), 1, 0, 0.0)
    with pytest.raises(KeyError):
        world.controller.enqueue("nobody", spec(), 1, 0, 0.0)
    batch = world.start()[0]
    world.finish()
    with pytest.raises(KeyError):
        world.controller.batch_done(batch, 1.0, 1.0)
    world.controller.offer(Ticket("b", "x", 0))
    with pytest.raises(ValueError):
        world.controller.enqueue("b", spec(), 0, 0, 0.0)


def test_accounts_whose_turn_it_is_not_start_nothing_alone():
    world = World(depth=2, batch_wait=0.0)
    world.must("slow", spec("m", b_max=2), 6, account="slow")
    (first, second) = world.start()
    world.must("again", spec("n"), 2, account="slow")
    assert isinstance(world.controller.next_batch(0, 0.0, {"slow"}), Pause)
    world.must("other", spec("o"), 2, account="other")
    batch = world.controller.next_batch(0, 0.0, {"slow"})
    assert [part.request for part in batch.parts] == ["other"]
    assert isinstance(world.controller.next_batch(0, 0.0, {"slow"}), Pause)
    batch = world.controller.next_batch(0, 0.0)
    assert [part.request for part in batch.parts] == ["again"]


def test_a_lane_starts_with_one_sample_until_it_is_known():
    world = World(depth=1, batch_seconds=0.4)
    world.must("slow", spec(b_min=4, b_max=32), 40)
    sizes = []
    for seconds in (60.0, 60.0):
        (batch,) = world.start()
        sizes.append(batch.size)
        world.finish(batch, seconds)
    assert sizes == [1, 1]
    world.must("fast", spec("n", b_min=4, b_max=32), 40)
    world.start()
    fast = [batch for batch in world.batches if batch.lane.digest == "n"]
    assert [batch.size for batch in fast] == [1]
    world.finish(fast[0], 0.01)
    world.start()
    assert world.batches[-1].lane.digest == "n" and world.batches[-1].size == 32


def test_samples_that_did_not_run_teach_nothing():
    world = World(depth=1, batch_seconds=0.4)
    world.must("slow", spec(b_min=1, b_max=32), 9)
    (batch,) = world.start()
    world.controller.batch_done(batch, 0.001, 1.0, ran=0)
    (batch,) = world.start()
    assert batch.size == 1
    world.controller.batch_done(batch, 0.5, 2.0, ran=1, whole=False)
    (batch,) = world.start()
    assert batch.size == 1
