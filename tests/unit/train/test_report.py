from __future__ import annotations

from hapi_compute.plan.candidates import Candidate
from hapi_compute.store.counters import Counts
from hapi_compute.train.plan import Plan
from hapi_compute.train.report import OF_THE_FIRST, Report
from hapi_compute.train.state import EpochRecord


class World:
    """The second of two ranks; ``others`` is what the first one's report has."""

    size, rank = 2, 1

    def __init__(self, first: Report):
        self.first = first

    def gather(self, value):
        first = self.first
        return [(first.counts, first.fallbacks, first.storage), value]

    def on_first(self, _work):
        return [getattr(self.first, name) for name in OF_THE_FIRST]


def report(name: str, number: int) -> Report:
    found = Report(Plan(Candidate(None), name), "m", 0, [EpochRecord(0, seconds=number)])
    found.counts = Counts(number, number + 1, number + 2, number + 3, number + 4)
    found.fallbacks, found.seconds = number, float(number)
    found.timings = {"wait": float(number)}
    return found


def test_counts_are_sums_and_times_are_the_first_ranks():
    first, second = report("first", 10), report("second", 200)
    first.storage, second.storage = {"infer": 1.0, "read": 2.0}, {"infer": 4.0, "queue": 8.0}
    second.gather(World(first))
    found = second.to_dict()
    assert (found["requests"], found["retries"], found["logins"]) == (210, 212, 218)
    assert (found["bytes_received"], found["bytes_sent"], found["fallbacks"]) == (214, 216, 210)
    storage = found["timings"]["storage"]
    assert (storage["infer"], storage["read"], storage["queue"]) == (5.0, 2.0, 8.0)
    assert found["timings"]["wait"] == 10.0 and found["timings"]["total"] == 10.0
    assert found["plan"]["reason"] == "first" and found["epochs"][0]["seconds"] == 10
