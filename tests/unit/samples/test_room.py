"""Threads that share memory for pixels."""

import threading
from concurrent.futures import ThreadPoolExecutor

from swift_hapi.samples.room import Room


def test_no_more_than_there_is_at_once():
    room, lock, most, now = Room(10), threading.Lock(), [], [0]

    def use(nbytes):
        with room.taken(nbytes):
            with lock:
                now[0] += nbytes
                most.append(now[0])
            with lock:
                now[0] -= nbytes

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, [3, 4, 5, 10, 1, 2] * 200))
    assert max(most) <= 10 and now == [0]


def test_what_is_larger_than_all_of_it_goes_alone_and_is_not_overtaken():
    room = Room(10)
    order, first_in, go_on = [], threading.Event(), threading.Event()

    def first():
        with room.taken(1):
            first_in.set()
            assert go_on.wait(60)
            order.append("first")

    def large():
        with room.taken(1000):
            order.append("large")

    def small():
        with room.taken(1):
            order.append("small")

    threads = [threading.Thread(target=target) for target in (first, large, small)]
    threads[0].start()
    assert first_in.wait(60)
    threads[1].start()
    # Until it stands in the door.
    while not room._turn.locked():
        assert threads[1].is_alive()
    threads[2].start()
    assert order == []
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert order == ["first", "large", "small"]


def test_room_is_given_back_by_who_fails():
    room = Room(1)
    for _ in range(3):
        try:
            with room.taken(1):
                raise ValueError
        except ValueError:
            pass
    with room.taken(1):
        pass
