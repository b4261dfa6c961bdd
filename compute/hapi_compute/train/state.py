"""Where a run is, and what it has measured so far; survives in a checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


@dataclass
class EpochRecord:
    """One epoch: mean loss and accuracy over its training batches as they were met.

    ``seconds`` of wall clock without validation; ``bytes_received`` by the shards it used.
    ``accuracy`` is top-1, ``top5`` counts a label among the five likeliest classes.
    """

    epoch: int
    loss: float = 0.0
    accuracy: float = 0.0
    seconds: float = 0.0
    bytes_received: int = 0
    steps: int = 0
    samples: int = 0
    val_accuracy: float | None = None
    val_top5: float | None = None
    val_loss: float | None = None
    top5: float = 0.0

    def add(self, loss: float, correct: int, samples: int, correct5: int = 0) -> None:
        """Account for one batch with mean ``loss``."""
        total = self.samples + samples
        self.loss += (loss - self.loss) * samples / total
        self.accuracy += (correct / samples - self.accuracy) * samples / total
        self.top5 += (correct5 / samples - self.top5) * samples / total
        self.steps += 1
        self.samples = total

    def to_dict(self) -> dict:
        """For a report; epochs count from 1."""
        values = asdict(self) | {"epoch": self.epoch + 1}
        for name in ("val_accuracy", "val_top5", "val_loss"):
            if values[name] is None:
                del values[name]
        return values


@dataclass
class RunState:
    """``epoch`` is the one under way, ``current`` its record so far.

    ``step_losses`` has the loss of every step (batch) from the start of the run. ``best`` is the
    epoch with the best validation so far; ``stopped`` tells that the run has ended early.
    """

    epoch: int = 0
    current: EpochRecord = field(default_factory=lambda: EpochRecord(0))
    epochs: list[EpochRecord] = field(default_factory=list)
    step_losses: list[float] = field(default_factory=list)
    best: int | None = None
    stopped: bool = False

    @property
    def step(self) -> int:
        return len(self.step_losses)

    def close_epoch(self) -> bool:
        """:returns: whether it is the best so far: higher accuracy in validation or, if that is
        equal, lower loss"""
        self.epochs.append(self.current)
        better = self._better(self.current)
        if better:
            self.best = self.epoch
        self.epoch += 1
        self.current = EpochRecord(self.epoch)
        return better

    def _better(self, record: EpochRecord) -> bool:
        if record.val_accuracy is None:
            return False
        if self.best is None:
            return True
        best = self.epochs[self.best]
        return (record.val_accuracy, -record.val_loss) > (best.val_accuracy, -best.val_loss)

    def without_gain(self) -> int:
        """Epochs since the best one."""
        return 0 if self.best is None else self.epoch - 1 - self.best

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict) -> RunState:
        return cls(
            epoch=document["epoch"],
            current=EpochRecord(**document["current"]),
            epochs=[EpochRecord(**record) for record in document["epochs"]],
            step_losses=list(document["step_losses"]),
            best=document["best"],
            stopped=document["stopped"],
        )
