from swift_hapi.engine.control.queueing import Job, LaneQueue
from swift_hapi.engine.control.types import Part, Ticket


def push(queue, name, account, samples):
    job = Job(Ticket(name, account, 0), samples=samples)
    job.ranges.append((0, samples))
    queue.push(job)
    return job


def taken(queue, size):
    return [(part.request, part.start, part.count) for _, part in queue.take(size)]


def test_many_small_requests_share_a_batch():
    queue = LaneQueue()
    for i in range(5):
        push(queue, f"r{i}", f"a{i % 2}", 1)
    assert len(taken(queue, 4)) == 4
    assert queue.waiting == 1


def test_a_backlog_does_not_delay_another_account():
    queue = LaneQueue()
    for i in range(100):
        push(queue, f"r{i}", "hog", 8)
    push(queue, "one", "guest", 1)
    assert ("one", 0, 1) in taken(queue, 8)


def test_odd_samples_rotate():
    queue = LaneQueue()
    for account in "abc":
        push(queue, account, account, 9)
    got = {"a": 0, "b": 0, "c": 0}
    for _ in range(3):
        for name, _, count in taken(queue, 4):
            got[name] += count
    assert got == {"a": 4, "b": 4, "c": 4}


def test_more_accounts_than_samples_take_turns():
    queue = LaneQueue()
    for i in range(10):
        push(queue, f"r{i}", f"a{i}", 5)
    rounds = [{name for name, _, _ in taken(queue, 4)} for _ in range(5)]
    assert all(len(names) == 4 for names in rounds)
    assert set.union(*rounds[:3]) == {f"r{i}" for i in range(10)}


def test_requests_of_one_account_go_in_order():
    queue = LaneQueue()
    push(queue, "first", "a", 3)
    push(queue, "second", "a", 3)
    assert taken(queue, 4) == [("first", 0, 3), ("second", 0, 1)]
    assert taken(queue, 4) == [("second", 1, 2)]


def test_put_back_restores_order():
    queue = LaneQueue()
    push(queue, "first", "a", 4)
    push(queue, "second", "a", 4)
    one, two = queue.take(3), queue.take(3)
    queue.put_back(two)
    queue.put_back(one)
    assert queue.waiting == 8
    assert taken(queue, 3) == [("first", 0, 3)]
    assert taken(queue, 3) == [("first", 3, 1), ("second", 0, 2)]


def test_remove_leaves_the_others():
    queue = LaneQueue()
    job = push(queue, "r", "a", 4)
    push(queue, "s", "a", 4)
    queue.take(1)
    assert queue.remove(job) == 3
    assert queue.remove(job) == 0
    assert taken(queue, 9) == [("s", 0, 4)]
    assert not queue.accounts and queue.waiting == 0


def test_parts_name_positions():
    queue = LaneQueue()
    push(queue, "r", "a", 5)
    queue.take(2)
    assert queue.take(2)[0][1] == Part("r", 2, 2)
