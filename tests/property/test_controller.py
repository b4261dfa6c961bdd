"""The controller under arbitrary sequences of events, checked against books kept by the test."""

import math
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from swift_hapi.engine.control import (
    Answer,
    Batch,
    ControlConfig,
    Controller,
    DeviceSpec,
    LaneKey,
    LaneSpec,
    Pause,
    Ticket,
    What,
)
from swift_hapi.engine.control.plan import LaneView, solve
from swift_hapi.engine.control.queueing import Stage
from swift_hapi.engine.control.waterfill import deal, fill, split

BUDGET = 1000
CONFIG = ControlConfig(
    depth=2, batch_wait=1.0, places=8, room=4, turn_seconds=3.0, turn_batches=3, patience=2,
    grow_after=2, input_share=0.35, output_share=0.35,
)
DOOR = 350
SPECS = [
    LaneSpec(LaneKey("a", "x", (3,)), 100, 20, 10, 2, b_min=1, b_max=8, sample_seconds=1.0),
    LaneSpec(LaneKey("a", "y", (3,)), 100, 20, 25, 2, b_min=2, b_max=8, sample_seconds=1.0),
    LaneSpec(LaneKey("b", "x", (3,)), 200, 0, 7, 0, b_min=4, b_max=16, sample_seconds=1.0),
    LaneSpec(LaneKey("c", "x", (3,)), 50, 50, 40, 1, b_min=2, b_max=4, sample_seconds=1.0),
    LaneSpec(LaneKey("d", "x", (3,)), 300, 10, 90, 3, b_min=1, b_max=4, sample_seconds=1.0),
]
SPEC_OF = {spec.key: spec for spec in SPECS}


def least(spec):
    """Bytes with which a lane can run alone."""
    sample = spec.activation_bytes + CONFIG.depth * spec.decoded_bytes
    return spec.weight_bytes + spec.workspace_bytes + spec.b_min * sample


class ControllerMachine(RuleBasedStateMachine):
    """Books: what an executor that obeys the controller would really hold."""

    requests = Bundle("requests")
    config = CONFIG

    def __init__(self):
        super().__init__()
        self.controller = Controller(
            [DeviceSpec("one", BUDGET), DeviceSpec("two", BUDGET, max_lanes=2)], self.config
        )
        self.now = 0.0
        self.count = 0
        self.input, self.output, self.samples = {}, {}, {}  # of live requests
        self.wanted = {}
        self.done = defaultdict(list)
        self.complete, self.lost = set(), set()
        self.flights: dict[int, Batch] = {}
        self.loading = []
        self.activation = {}  # bytes per sample as believed at the start
        self.loaded = [{}, {}]
        self.believed = True  # no memory model has been found too small so far

    # -- helpers ------------------------------------------------------------------------------

    def news(self):
        while events := self.controller.take_events():
            self.obey(events)

    def obey(self, events):
        for event in events:
            if event.what is What.EVICT:
                flights = [b for b in self.flights.values() if b.device == event.device]
                assert event.subject not in [batch.lane.digest for batch in flights]
                del self.loaded[event.device][event.subject]
            elif event.what is What.SHED:
                assert not self.believed
                self.lost.add(event.subject)
            elif event.what is What.EXPIRED:
                self.lost.add(event.subject)
            elif event.what is What.ADMITTED and event.subject in self.wanted:
                self.go_on(event.subject)

    def start(self, device, without=frozenset()):
        lanes = self.controller.devices[device].lanes
        waiting = {key: set(lane.queue.accounts) for key, lane in lanes.busy.items()}
        limits = {key: lane.limit for key, lane in lanes.busy.items()}
        answer = self.controller.next_batch(device, self.now, without)
        if isinstance(answer, Pause):
            self.news()
            assert answer.until is None or answer.until > self.now
            return False
        assert waiting[answer.lane] - without
        lane = lanes.busy[answer.lane]
        left = lane.queue.waiting
        assert answer.size == sum(part.count for part in answer.parts)
        assert answer.size >= min(lane.least, answer.size + left)
        assert answer.size <= limits[answer.lane] <= lane.cap
        self.news()
        self.flights[answer.id] = answer
        self.activation[answer.id] = lane.activation_bytes
        assert answer.load == (answer.lane.digest not in self.loaded[device])
        self.loaded[device][answer.lane.digest] = SPEC_OF[answer.lane].weight_bytes
        return True

    def land(self, batch, seconds, **ran):
        del self.flights[batch.id]
        for part in batch.parts:
            self.done[part.request].append((part.start, part.count))
        for request in self.controller.batch_done(batch, seconds, self.now, **ran):
            assert request not in self.complete
            self.complete.add(request)
            ranges = sorted(self.done[request])
            assert ranges[0][0] == 0
            for (start, count), (after, _) in zip(ranges, ranges[1:], strict=False):
                assert start + count == after
            assert sum(ranges[-1]) == self.samples[request]
        self.news()

    def leave(self, request):
        self.wanted.pop(request, None)
        self.controller.depart(request, self.now)
        self.controller.depart(request, self.now)
        for book in (self.input, self.output, self.samples):
            book.pop(request, None)
        self.news()

    # -- rules --------------------------------------------------------------------------------

    @rule(
        account=st.sampled_from("pqr"),
        size=st.integers(0, 200),
        spec=st.sampled_from(SPECS),
        samples=st.integers(1, 20),
        output=st.integers(0, 250),
    )
    def submit(self, account, size, spec, samples, output):
        """A request that queues its samples as soon as it is admitted."""
        self.count += 1
        name = f"{account}{self.count}"
        self.wanted[name] = spec, samples, output
        verdict = self.controller.offer(Ticket(name, account, size, digest=spec.key.digest))
        if verdict.answer in (Answer.ADMITTED, Answer.WAITING):
            self.input[name] = size
        if verdict.answer is Answer.ADMITTED:
            self.go_on(name)
        self.news()

    def go_on(self, name):
        spec, samples, output = self.wanted.pop(name)
        self.samples[name], self.output[name] = samples, output
        verdict = self.controller.enqueue(name, spec, samples, output, self.now)
        if verdict.answer is Answer.NEVER:
            assert not self.believed or DOOR + output + least(spec) > BUDGET
            self.leave(name)

    @rule(
        target=requests, account=st.sampled_from("pqr"), size=st.integers(0, 400),
        patience=st.sampled_from([8.0, math.inf]),
    )
    def offer(self, account, size, patience):
        self.count += 1
        name = f"{account}{self.count}"
        verdict = self.controller.offer(Ticket(name, account, size, self.now + patience))
        self.news()
        assert (verdict.answer is Answer.NEVER) == (size > DOOR)
        if verdict.answer in (Answer.ADMITTED, Answer.WAITING):
            self.input[name] = size
        return name

    @rule(
        request=requests, spec=st.sampled_from(SPECS), samples=st.integers(1, 20),
        output=st.integers(0, 320),
    )
    def enqueue(self, request, spec, samples, output):
        if not self.controller.admitted(request):
            return
        verdict = self.controller.enqueue(request, spec, samples, output, self.now)
        self.news()
        if verdict.answer is Answer.NEVER:
            self.leave(request)
            return
        self.samples[request] = samples
        self.output[request] = output

    @rule(device=st.integers(0, 1))
    def start_one(self, device):
        self.start(device)

    @rule(device=st.integers(0, 1), without=st.frozensets(st.sampled_from("pqr")))
    def start_without(self, device, without):
        """Some accounts' micro-batches make way for those of others."""
        self.start(device, without)

    @rule(device=st.integers(0, 1))
    def start_all(self, device):
        while self.start(device):
            pass

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), seconds=st.floats(0, 20))
    def finish(self, data, seconds):
        self.land(self.flights[data.draw(st.sampled_from(sorted(self.flights)))], seconds)

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), seconds=st.floats(0, 20), whole=st.booleans())
    def finish_in_part(self, data, seconds, whole):
        batch = self.flights[data.draw(st.sampled_from(sorted(self.flights)))]
        self.land(batch, seconds, ran=data.draw(st.integers(0, batch.size)), whole=whole)

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def fail(self, data):
        batch = self.flights.pop(data.draw(st.sampled_from(sorted(self.flights))))
        self.believed = False
        for request in self.controller.batch_failed(batch, self.now):
            assert batch.size == 1
            self.lost.add(request)
        self.news()

    @rule(steps=st.integers(1, 6), seconds=st.floats(0.1, 3))
    def run(self, steps, seconds):
        """Micro-batches end in the order of their starts, and the next ones start."""
        for _ in range(steps):
            for device in (0, 1):
                self.start_all(device)
            if self.flights:
                self.now += seconds
                self.land(self.flights[min(self.flights)], seconds)

    @precondition(lambda self: self.input)
    @rule(data=st.data())
    def depart(self, data):
        self.leave(data.draw(st.sampled_from(sorted(self.input))))

    @precondition(lambda self: self.input)
    @rule(data=st.data())
    def release_input(self, data):
        request = data.draw(st.sampled_from(sorted(self.input)))
        self.controller.release_input(request, self.now)
        if self.controller._jobs[request][0].placed:
            self.input[request] = 0
        self.news()

    @rule(seconds=st.floats(0.1, 5.0))
    def tick(self, seconds):
        self.now += seconds
        self.controller.expire(self.now)
        self.news()

    @rule(spec=st.sampled_from(SPECS), factor=st.sampled_from([0.5, 1.5, 4.0]))
    def calibrate(self, spec, factor):
        self.believed = self.believed and factor <= 1
        for device in (0, 1):
            self.controller.calibrate(device, spec.key, int(spec.activation_bytes * factor))

    @rule(device=st.integers(0, 1), spec=st.sampled_from(SPECS))
    def begin_loading(self, device, spec):
        """Weights are loaded before any lane needs them."""
        digest = spec.key.digest
        if self.controller.hold_weights(device, digest, spec.weight_bytes):
            self.news()
            assert digest not in self.loaded[device]
            self.loaded[device][digest] = spec.weight_bytes
            self.loading.append((device, digest))
        self.news()

    @precondition(lambda self: self.loading)
    @rule(works=st.booleans())
    def end_loading(self, works):
        device, digest = self.loading.pop(0)
        nbytes = self.loaded[device][digest] if works else 0
        stays = self.controller.settle_weights(device, digest, nbytes, self.now)
        if not stays:
            del self.loaded[device][digest]
        self.news()

    # -- invariants ---------------------------------------------------------------------------

    @invariant()
    def never_beyond_the_budget(self):
        for device in self.controller.devices:
            ledger, index = device.ledger, device.index
            held = 0
            for job, owner in self.controller._jobs.values():
                if owner is device:
                    held += self.input[job.ticket.id] if job.placed else 0
                    held += self.output[job.ticket.id] if job.seated else 0
            ghosts = {
                id(job): job.input_held + job.output_bytes
                for lane in device.lanes.busy.values()
                for flight in lane.flights.values()
                for job, _ in flight.taken
                if job.stage is Stage.GONE
            }
            assert ledger.held == held + sum(ghosts.values())
            assert ledger.weights.total == sum(self.loaded[index].values())
            assert set(ledger.weights) == set(self.loaded[index])
            running = defaultdict(list)
            for batch in self.flights.values():
                if batch.device == index:
                    running[SPEC_OF[batch.lane]].append((batch.size, self.activation[batch.id]))
            assert ledger.reserved == sum(
                spec.workspace_bytes
                + sum(size * spec.decoded_bytes for size, _ in batches)
                + max(size * activation for size, activation in batches)
                for spec, batches in running.items()
            )
            assert ledger.used <= BUDGET
            assert ledger.held + device.lanes.plan().total <= BUDGET

    @invariant()
    def plan_conserves_work(self):
        for device in self.controller.devices:
            lanes, plan = device.lanes, device.lanes.plan()
            left = BUDGET - device.ledger.held - device.ledger.pending(lanes.need) - plan.total
            assert left >= 0
            stale = any(key not in lanes.busy for key in plan.targets)
            full = device.spec.max_lanes is not None and len(plan.targets) >= device.spec.max_lanes
            for key, lane in lanes.busy.items():
                top = min(lane.limit, lane.total)
                if key in plan.targets:
                    assert plan.targets[key] >= min(lane.least, top)
                    assert plan.targets[key] >= top or lane.sample_cost > left
                elif not (full or plan.insisting):
                    least = lane.spec.workspace_bytes + min(lane.least, top) * lane.sample_cost
                    if key.digest not in plan.digests:
                        least += lane.spec.weight_bytes
                    assert least > left
            assert not stale or plan.satisfied

    @invariant()
    def somebody_can_always_go_on(self):
        for device in self.controller.devices:
            if self.believed:
                assert device.ledger.held + device.lanes.need <= BUDGET

    def teardown(self):
        """Everything that was admitted finishes, whatever happened before."""
        while self.loading:
            self.end_loading(True)
        for _ in range(5000):
            self.controller.expire(self.now)
            for device in (0, 1):
                while self.start(device):
                    pass
            for request in list(self.input):
                over = request in self.complete or request in self.lost
                unknown = request not in self.samples and self.controller.admitted(request)
                if over or unknown:
                    self.leave(request)
            if self.flights:
                self.land(self.flights[min(self.flights)], 1.0)
            self.now += 1.0
            if not self.input:
                break
        assert not self.input
        for batch in list(self.flights.values()):
            self.land(batch, 1.0)
        for device in self.controller.devices:
            assert device.ledger.held == device.ledger.reserved == 0
            assert not device.lanes.busy and not device.lanes.jobs
            assert device.ledger.door.holders == device.ledger.seats.holders == 0
            assert device.ledger.door.waiting == device.ledger.seats.waiting == 0
            assert abs(device.outlook._expected) < 1e-6 and device._leaving == 0
            assert not device.outlook.coming


class TimedMachine(ControllerMachine):
    """Micro-batches are small until samples' time is known, and while they take long."""

    config = replace(CONFIG, batch_seconds=2.0)


TestTimedController = TimedMachine.TestCase
TestTimedController.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestController = ControllerMachine.TestCase
TestController.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

amounts = st.lists(st.integers(0, 50), min_size=1, max_size=12)


@given(st.integers(0, 300), amounts)
def test_deal_is_whole_and_fair(total, demands):
    shares, odd = deal(total, demands)
    assert sum(shares) == min(total, sum(demands))
    assert all(0 <= share <= demand for share, demand in zip(shares, demands, strict=True))
    unmet = [share for share, demand in zip(shares, demands, strict=True) if share < demand]
    assert not unmet or max(shares) - min(unmet) <= 1
    assert odd == sorted(odd)


@given(st.floats(0, 500), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1))
def test_fill_has_one_level(capacity, bounds):
    lows = [float(min(pair)) for pair in bounds]
    highs = [float(max(pair)) for pair in bounds]
    shares = fill(capacity, lows, highs)
    for share, low, high in zip(shares, lows, highs, strict=True):
        assert low - 1e-9 <= share <= high + 1e-9
    if sum(lows) <= capacity <= sum(highs):
        assert sum(shares) == pytest.approx(capacity, abs=1e-6)
    between = [
        share
        for share, low, high in zip(shares, lows, highs, strict=True)
        if low + 1e-6 < share < high - 1e-6
    ]
    assert not between or max(between) - min(between) < 1e-6
    for share, high in zip(shares, highs, strict=True):
        if between and share < high - 1e-6:
            assert share >= between[0] - 1e-6


@given(st.floats(0, 500), amounts)
def test_split_is_fill_without_lows(capacity, demands):
    expected = fill(capacity, [0.0] * len(demands), demands)
    assert split(capacity, demands) == pytest.approx(expected)


def _view(name, account, cost, floor, top):
    return LaneView(LaneKey(name, "x", ()), 10, 5, cost, floor, top, {account: top})


@given(
    st.integers(20, 4000), st.integers(1, 12), st.integers(1, 9), st.integers(1, 5),
    st.integers(5, 200),
)
def test_equal_demands_get_equal_shares(budget, count, cost, floor, top):
    views = [_view(f"m{i}", f"acc{i}", cost, floor, top) for i in range(count)]
    plan = solve(budget, views)
    if len(plan.targets) == count:
        assert max(plan.targets.values()) - min(plan.targets.values()) <= 1
    assert plan.total <= budget


@given(
    st.integers(20, 3000),
    st.lists(
        st.tuples(
            st.sampled_from("pqr"), st.integers(1, 9), st.integers(1, 5), st.integers(5, 90)
        ),
        min_size=1,
        max_size=8,
    ),
    st.randoms(use_true_random=False),
)
def test_order_of_arrival_does_not_decide_shares(budget, rows, random):
    views = [_view(f"m{i}", *row) for i, row in enumerate(rows)]
    one = solve(budget, views)
    if one.waiting:  # who waits is a question of order, and must be
        return
    random.shuffle(views)
    other = solve(budget, views)
    spread = sum(view.sample_cost for view in views)
    for view in views:
        difference = abs(one.targets[view.key] - other.targets[view.key])
        assert difference * view.sample_cost <= max(view.sample_cost, spread)
    assert abs(one.total - other.total) <= spread


@given(
    st.integers(50, 4000),
    st.lists(st.tuples(st.sampled_from("pqrs"), st.integers(5, 90)), min_size=1, max_size=10),
)
def test_an_account_gains_nothing_by_more_lanes(budget, rows):
    views = [_view(f"m{i}", account, 1, 1, top) for i, (account, top) in enumerate(rows)]
    plan = solve(budget, views)
    if plan.waiting:
        return
    got, wanted, lanes = defaultdict(int), defaultdict(int), defaultdict(int)
    for view in views:
        (account,) = view.demands
        got[account] += plan.targets[view.key]
        wanted[account] += view.top
        lanes[account] += 1
    for a in got:
        for b in got:
            if got[a] < wanted[a]:  # whoever is short has no less than anybody, up to rounding
                assert got[a] >= got[b] - lanes[a] - lanes[b] - 1


class StarvationMachine(RuleBasedStateMachine):
    """One lane keeps a full queue under a stream of newcomers: it runs after bounded many."""

    def __init__(self):
        super().__init__()
        config = replace(CONFIG, input_share=0.1, output_share=0.1)
        self.controller = Controller([DeviceSpec("one", 450)], config)
        self.count = 0
        self.now = 0.0
        self.flights = []
        self.since = 0
        big = LaneSpec(LaneKey("big", "x", ()), 100, 0, 60, 0, 4, 4, 1.0)
        assert self.submit("victim", big, 400)

    def submit(self, account, spec, samples):
        self.count += 1
        ticket = Ticket(str(self.count), account, 0)
        answer = self.controller.submit(ticket, spec, samples, 0, self.now).answer
        return answer is Answer.ADMITTED

    @rule(number=st.integers(0, 5), samples=st.integers(1, 30))
    def newcomer(self, number, samples):
        spec = LaneSpec(LaneKey(f"m{number}", "x", ()), 40, 0, 20, 0, 1, 8, 1.0)
        if not self.submit(f"new{self.count}", spec, samples):
            self.controller.depart(str(self.count), self.now)

    @rule(seconds=st.floats(0.0, 10.0))
    def run(self, seconds):
        self.now += seconds
        while isinstance(batch := self.controller.next_batch(0, self.now), Batch):
            self.flights.append(batch)
            self.since = 0 if batch.lane.digest == "big" else self.since + 1
        if self.flights:
            batch = self.flights.pop(0)
            for request in self.controller.batch_done(batch, seconds, self.now):
                self.controller.depart(request, self.now)

    @invariant()
    def bounded(self):
        lanes = 7
        turns = lanes * (CONFIG.turn_batches + CONFIG.depth)
        assert self.since <= CONFIG.patience * lanes + lanes + turns


StarvationMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=120, deadline=None,
)
TestStarvation = StarvationMachine.TestCase
