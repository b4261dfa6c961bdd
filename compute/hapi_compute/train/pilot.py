"""Watches a run, and moves the split at iteration boundaries when measurements say so.

The training thread calls it after every iteration. A stretch of iterations of one candidate alone
gives an observation: how long shards took to come, how long a batch takes to train, what the
storage tier says, what the network carried. Results do not depend on any of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from hapi_compute.data.batches import Batch
from hapi_compute.data.routing import Brought, Router, Stretch
from hapi_compute.data.timings import Timings
from hapi_compute.plan.candidates import RAW, Candidate
from hapi_compute.plan.choice import Chooser, Observed
from hapi_compute.store.occupancy import FETCH, NETWORK, STORAGE
from hapi_compute.train.plan import Move, Plan

#: batches of the present candidate alone that make an observation
_BATCHES = 3
#: shards beyond those in flight that do
_SHARDS = 3
#: seconds that an observation spans at least
_SECONDS = 0.5
#: bytes of a request from which its transfer tells the network's speed
_TELLING = 1 << 20
#: a stage that nothing has told of for so long is looked at with one shard, if that costs little
_STALE = 10.0
_PART = 0.02  #: of the time may go into such looks
#: bytes of a request from which its transfer at least hints at a network that has become faster,
#: and by what factor it must seem so
_HINTING, _FASTER = 64 << 10, 2.0


class Watch:
    """What the training thread has done since the present candidate's batches came alone."""

    def __init__(self, timings: Timings):
        self._timings = timings
        self.restart()

    def restart(self) -> None:
        self.batches = self.samples = 0
        self.busy = 0.0
        self._cpu = self._timings.cpu()

    def add(self, batch: Batch, cut: str | None, seconds: float) -> None:
        """:param seconds: that the batch took, without waiting for it"""
        if any(part.cut != cut for part in batch.parts):
            self.restart()
            return
        if self.batches == 0:
            # The CPU seconds of this batch are gone already; counting begins after it.
            self._cpu = self._timings.cpu()
        else:
            self.samples += len(batch.labels)
            self.busy += seconds
        self.batches += 1

    def cpu(self, *steps: str) -> float:
        now = self._timings.cpu()
        return sum(now.get(step, 0.0) - self._cpu.get(step, 0.0) for step in steps)


class Pilot:
    """Without a chooser it only measures.

    :param candidates: by name
    :param batch: samples of an iteration
    :param moved: called with the new candidate after a move
    """

    def __init__(
        self,
        plan: Plan,
        router: Router,
        timings: Timings,
        candidates: dict[str, Candidate],
        batch: int,
        in_flight: int,
        chooser: Chooser | None = None,
        moved: Callable[[Candidate], None] = lambda candidate: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.plan = plan
        self._router = router
        self._watch = Watch(timings)
        self._candidates = candidates
        self._batch = batch
        self._in_flight = in_flight
        self._chooser = chooser
        self._moved = moved
        self._clock = clock
        self._told = dict.fromkeys((NETWORK, STORAGE), clock())
        self._looked = self._confirming = False
        #: what transfers too small to tell seemed to be worth when the network was looked at
        self._hints: dict[str, float] = {}
        #: candidates that the storage tier has computed before in this run
        self._warm = {plan.candidate.name}

    def after(self, step: int, batch: Batch, seconds: float) -> None:
        """An iteration is done.

        :param step: its number over the whole run
        :param seconds: that it took, without the wait for its batch
        """
        self._watch.add(batch, self.plan.candidate.cut and self.plan.candidate.cut.name, seconds)
        self._look_at_strays()
        stretch = self._ready()
        if stretch is not None:
            name = self.plan.candidate.name
            seen = observed(stretch, self._watch, self._batch, self.plan.cut is None)
            self.plan.measured[name] = seen.time
            self._router.restart()
            self._watch.restart()
            if self._chooser is not None:
                self._note(seen)
                self._chooser.observe(name, seen)
                self._hint(name, stretch, seen)
                self._decide(step + 1)
        if self._chooser is not None:
            self._refresh()

    def follow(self, step: int, name: str, reason: str) -> None:
        """Go on by candidate ``name``, as somebody else has decided."""
        self._go(step, name, reason, trial=False)

    def pause(self) -> None:
        """Something else used tiers and network; what was seen meanwhile does not count."""
        self._router.restart()
        self._watch.restart()

    def _ready(self) -> Stretch | None:
        stretch = self._router.stretch()
        if (
            stretch is None
            or self._watch.batches <= _BATCHES
            or not self._watch.samples
            or stretch.brought.shards < self._in_flight + _SHARDS
            or stretch.took.at < _SECONDS
        ):
            return None
        return stretch

    def _note(self, seen: Observed) -> None:
        now = self._clock()
        if seen.bandwidth is not None:
            self._told[NETWORK] = now
        if seen.storage is not None:
            self._told[STORAGE] = now

    def _hint(self, name: str, stretch: Stretch, seen: Observed) -> None:
        """Small transfers end too soon to measure a network by; but when they seem far faster
        than before, it is time for a look. Bursts may deceive, so each height counts once."""
        brought, network = stretch.brought, stretch.took.busy[NETWORK]
        if seen.bandwidth is not None:
            self._hints[name] = seen.bandwidth
        elif network > 0 and brought.bytes / brought.requests >= _HINTING:
            hint = brought.bytes / network
            if hint > _FASTER * self._hints.get(name, self._chooser.bandwidth):
                self._hints[name] = hint
                self._told[NETWORK] = -math.inf

    def _decide(self, step: int) -> None:
        decision = self._chooser.decide()
        plan = self.plan
        plan.take(self._chooser)
        plan.runner_up = decision.runner_up
        plan.reason = decision.reason
        if decision.name != plan.candidate.name:
            self._go(step, decision.name, decision.reason, decision.trial)

    def _go(self, step: int, name: str, reason: str, trial: bool) -> None:
        plan = self.plan
        plan.candidate = self._candidates[name]
        plan.history.append(
            Move(
                step,
                name,
                reason,
                trial,
                {n: each.time for n, each in plan.estimates.items()},
                dict(plan.measured),
                plan.bandwidth,
            )
        )
        self._router.switch(name, warm_up=self._in_flight)
        self._warm.add(name)
        self._watch.restart()
        self._moved(plan.candidate)

    def _look_at_strays(self) -> None:
        for name, brought in self._router.strays():
            if self._chooser is None or brought.fallbacks:
                continue
            if name != RAW and name not in self._warm:
                # The first time of all is slower than any other.
                self._warm.add(name)
                self._router.once(name)
                continue
            seen = single(brought, name == RAW)
            self._note(seen)
            self._chooser.observe(name, seen)
            if name == RAW:
                # Far off: the next one will tell.
                self._confirming = self._chooser.doubts(NETWORK) and not self._confirming
                if self._confirming:
                    self._router.once(name)

    def _refresh(self) -> None:
        """Have one shard come another way when nothing has told of a stage for long."""
        now = self._clock()
        estimates = self._chooser.estimates()
        if self.plan.cut is None:
            stage, others = STORAGE, [e for e in estimates.values() if e.name != RAW]
        else:
            stage, others = NETWORK, [e for e in estimates.values() if e.name == RAW]
        if not others:
            return
        best = min(others, key=lambda each: each.time)
        shard = best.time * self._chooser.setting.shard / self._batch
        patience = max(_STALE, shard / _PART)
        if stage == STORAGE and not self._looked:
            patience = 0.0  # Profiling saw that tier alone, not beside this run.
        if now - self._told[stage] > patience:
            self._looked |= stage == STORAGE
            self._told[stage] = now
            self._router.once(best.name)


def observed(stretch: Stretch, watch: Watch, batch: int, raw: bool) -> Observed:
    """What a stretch tells."""
    brought, took = stretch.brought, stretch.took
    samples = brought.samples
    coming = took.busy[FETCH] / samples
    training = watch.busy / watch.samples
    network = took.busy[NETWORK]
    telling = network > 0 and (
        brought.bytes / brought.requests >= _TELLING or network >= 0.3 * took.at
    )
    return Observed(
        time=batch * max(coming, training),
        storage=None if raw else _service(brought, took.busy[STORAGE] / samples),
        compute=watch.cpu("frozen", "trainable") / watch.samples,
        receive=None if brought.fallbacks else brought.cpu / samples,
        decode=watch.cpu("decode") / watch.samples if raw else None,
        client=batch * training if training >= coming else None,
        bandwidth=brought.bytes / network if telling else None,
    )


def _service(brought: Brought, waited: float) -> float | None:
    """Seconds of the storage tier per sample.

    ``waited``, while any request had no answer yet, is right when that tier is busy all the time;
    when the network is, answers queue behind one another, and what the tier says of itself is.
    """
    if brought.fallbacks or not brought.storage:
        return None
    said = sum(s for step, s in brought.storage.items() if step != "queue") / brought.samples
    return min(waited, said)


def single(brought: Brought, raw: bool) -> Observed:
    """What one shard beside others tells."""
    if raw:
        return Observed(bandwidth=brought.bytes / brought.sent if brought.sent > 0 else None)
    return Observed(storage=_service(brought, brought.waited / brought.samples))


def named(candidates: Sequence[Candidate]) -> dict[str, Candidate]:
    return {candidate.name: candidate for candidate in candidates}
