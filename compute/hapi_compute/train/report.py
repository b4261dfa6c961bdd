"""The numbers of a run: for ``--json``, and as a table."""

from __future__ import annotations

from dataclasses import dataclass, field

from hapi_compute.store.counters import Counts
from hapi_compute.train.distributed import World
from hapi_compute.train.evaluate import Scores
from hapi_compute.train.plan import Plan
from hapi_compute.train.state import EpochRecord

#: steps on the compute tier that are always reported, in this order
STEPS = (
    "start", "profile", "wait", "frozen", "trainable", "sync", "evaluate", "write", "decode",
    "fallback_head",
)  # fmt: skip
#: what of several ranks' reports is the first one's: times, and what its pilot has seen
OF_THE_FIRST = ("timings", "seconds_by_kind", "seconds", "plan", "epochs")
STORAGE_STEPS = ("queue", "read", "decode", "infer", "encode")


@dataclass
class Report:
    """One run.

    ``timings`` are seconds: ``start``, ``profile``, ``wait``, ``frozen``, ``trainable``,
    ``evaluate`` and ``write`` of the training thread, ``decode`` and ``fallback_head`` summed over
    the threads beside it; ``storage`` is the sum over all answers of what the storage tier says in
    ``Server-Timing``. ``seconds_by_kind`` splits the time of training: each moment counts as the
    first that holds of computing, receiving (and decoding), waiting for the network, waiting for
    the storage tier, and none of them. Of several ranks, all counts (bytes, requests, retries,
    fallbacks, logins) and ``storage`` are sums, the other times and the plan are the first
    one's; ``sync`` is its wait for the others. ``best_epoch`` (from 0) is the one whose weights
    were kept.
    """

    plan: Plan
    model: str
    seed: int
    epochs: list[EpochRecord] = field(default_factory=list)
    step_losses: list[float] = field(default_factory=list)
    test: Scores | None = None
    best_epoch: int | None = None
    ranks: int = 1
    precision: str = "float32"
    classes: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    storage: dict[str, float] = field(default_factory=dict)
    seconds_by_kind: dict[str, float] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    fallbacks: int = 0
    samples: int = 0
    seconds: float = 0.0

    @property
    def test_accuracy(self) -> float | None:
        return None if self.test is None else self.test.accuracy

    def gather(self, world: World) -> None:
        """Add up what every rank has of its own; a collective call."""
        if world.size == 1:
            return
        found = world.gather((self.counts, self.fallbacks, self.storage))
        self.counts = sum((counts for counts, _, _ in found), Counts())
        self.fallbacks = sum(fallbacks for _, fallbacks, _ in found)
        self.storage = {}
        for _, _, storage in found:
            for step, seconds in storage.items():
                self.storage[step] = self.storage.get(step, 0.0) + seconds
        first = world.on_first(lambda: [getattr(self, name) for name in OF_THE_FIRST])
        for name, value in zip(OF_THE_FIRST, first, strict=True):
            setattr(self, name, value)

    def to_dict(self) -> dict:
        timings = {step: self.timings.get(step, 0.0) for step in STEPS}
        timings |= self.timings
        storage = {step: self.storage.get(step, 0.0) for step in STORAGE_STEPS} | self.storage
        return {
            "mode": self.plan.mode,
            "split": self.plan.split,
            "model": self.model,
            "seed": self.seed,
            "epochs": [record.to_dict() for record in self.epochs],
            "step_losses": self.step_losses,
            "ranks": self.ranks,
            "precision": self.precision,
            "classes": self.classes,
            "best_epoch": None if self.best_epoch is None else self.best_epoch + 1,
            "test_accuracy": self.test_accuracy,
            "test": None if self.test is None else self.test.to_dict(),
            "timings": {**timings, "total": self.seconds, "storage": storage},
            "seconds_by_kind": self.seconds_by_kind,
            "bytes_received": self.counts.bytes_received,
            "bytes_sent": self.counts.bytes_sent,
            "requests": self.counts.requests,
            "retries": self.counts.retries,
            "logins": self.counts.logins,
            "fallbacks": self.fallbacks,
            "samples": self.samples,
            "plan": self.plan.to_dict(),
        }

    def table(self) -> str:
        """For a terminal."""
        lines = [f"{'epoch':>5} {'loss':>9} {'accuracy':>8} {'val':>6} {'s':>8} {'MB':>9}"]
        for record in self.epochs:
            val = "" if record.val_accuracy is None else f"{record.val_accuracy:.3f}"
            lines.append(
                f"{record.epoch + 1:>5} {record.loss:>9.4f} {record.accuracy:>8.3f} {val:>6} "
                f"{record.seconds:>8.1f} {record.bytes_received / 1e6:>9.2f}"
            )
        if self.test_accuracy is not None:
            lines.append(
                f"test accuracy {self.test_accuracy:.4f} (top-5 {self.test.top5:.4f}, loss "
                f"{self.test.loss:.4f})"
            )
        if self.best_epoch is not None:
            lines.append(f"the model has the weights of epoch {self.best_epoch + 1}, the best")
        spent = ", ".join(
            f"{step} {self.timings[step]:.1f}" for step in STEPS if self.timings.get(step, 0) > 0
        )
        if self.precision != "float32":
            lines.append(f"trained in {self.precision}")
        lines.append(f"seconds: {self.seconds:.1f} in all; {spent}")
        if self.storage:
            spent = ", ".join(f"{step} {seconds:.1f}" for step, seconds in self.storage.items())
            lines.append(f"seconds on the storage tier: {spent}")
        lines.append(
            f"received {self.counts.bytes_received / 1e6:.2f} MB in {self.counts.requests} "
            f"requests; {self.counts.retries} retries, {self.fallbacks} shards read raw instead"
        )
        if self.seconds_by_kind:
            spent = ", ".join(f"{kind} {s:.1f}" for kind, s in self.seconds_by_kind.items())
            lines.append(f"seconds of training, each counted once: {spent}")
        lines += self._planned()
        return "\n".join(lines)

    def _planned(self) -> list[str]:
        """The plan, how it moved, and what was predicted and measured of what ran."""
        plan = self.plan
        lines = [f"split {plan.split}: {plan.reason}"]
        for move in plan.history:
            lines.append(f"  from step {move.step + 1} on {move.split}: {move.reason}")
        for name, seconds in plan.measured.items():
            first = plan.first.get(name)
            said = "" if first is None else f", {first * 1e3:.1f} ms predicted at first"
            lines.append(f"  {name}: {seconds * 1e3:.1f} ms per iteration measured{said}")
        return lines
