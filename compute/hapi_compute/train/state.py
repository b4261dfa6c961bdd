"""Where a run is, and what it has measured so far; survives in a checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


@dataclass
class EpochRecord:
    """One epoch: mean loss and accuracy over its training batches as they were met.

    ``seconds`` of wall clock without validation; ``bytes_received`` by the shards it used.
    """

    epoch: int
    loss: float = 0.0
    accuracy: float = 0.0
    seconds: float = 0.0
    bytes_received: int = 0
    steps: int = 0
    samples: int = 0
    val_accuracy: float | None = None

    def add(self, loss: float, correct: int, samples: int) -> None:
        """Account for one batch with mean ``loss``."""
        total = self.samples + samples
        self.loss += (loss - self.loss) * samples / total
        self.accuracy += (correct / samples - self.accuracy) * samples / total
        self.steps += 1
        self.samples = total

    def to_dict(self) -> dict:
        """For a report; epochs count from 1."""
        values = asdict(self) | {"epoch": self.epoch + 1}
        if self.val_accuracy is None:
            del values["val_accuracy"]
        return values


@dataclass
class RunState:
    """``epoch`` is the one under way, ``current`` its record so far.

    ``step_losses`` has the loss of every optimiser step from the start of the run.
    """

    epoch: int = 0
    current: EpochRecord = field(default_factory=lambda: EpochRecord(0))
    epochs: list[EpochRecord] = field(default_factory=list)
    step_losses: list[float] = field(default_factory=list)

    @property
    def step(self) -> int:
        return len(self.step_losses)

    def close_epoch(self) -> None:
        self.epochs.append(self.current)
        self.epoch += 1
        self.current = EpochRecord(self.epoch)

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict) -> RunState:
        return cls(
            epoch=document["epoch"],
            current=EpochRecord(**document["current"]),
            epochs=[EpochRecord(**record) for record in document["epochs"]],
            step_losses=list(document["step_losses"]),
        )
