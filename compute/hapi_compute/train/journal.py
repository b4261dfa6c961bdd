"""The record of a run that grows with it: ``log.jsonl``, and events for TensorBoard.

One JSON object a line: ``{"event": "step", "epoch", "step", "loss", "lr", "seconds"}`` for each
step (counted from 1 over the whole run; ``seconds`` into its epoch), and ``{"event": "epoch"}``
with what the report says of an epoch. A resumed run takes out what was logged after its
checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path

from hapi_compute.train.config import TrainConfig
from hapi_compute.train.files import write_whole
from hapi_compute.train.state import RunState

NAME = "log.jsonl"
EVENTS = "tensorboard"


class Journal:
    """Writes nothing."""

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_exc) -> None:
        """Close what is open."""

    def step(self, state: RunState, loss: float, rate: float) -> None:
        """A step is done and counted in ``state``."""

    def epoch(self, state: RunState) -> None:
        """An epoch is done and closed in ``state``."""


class Files(Journal):
    """:param state: where the run is
    :raises ValueError: TensorBoard is wanted and not installed
    """

    def __init__(self, config: TrainConfig, state: RunState):
        out = Path(config.out)
        writer = None
        if config.tensorboard:
            writer = _event_writer(out / EVENTS, state.step)
        path = out / NAME
        kept = [line for line in _lines(path) if _stays(line, state)] if state.step else []
        write_whole(path, "".join(kept).encode())
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed in __exit__
        self._events = writer

    def __exit__(self, *_exc) -> None:
        self._file.close()
        if self._events is not None:
            self._events.close()

    def step(self, state: RunState, loss: float, rate: float) -> None:
        self._write(
            {
                "event": "step", "epoch": state.epoch + 1, "step": state.step, "loss": loss,
                "lr": rate, "seconds": round(state.current.seconds, 6),
            }
        )  # fmt: skip
        if self._events is not None:
            self._events.add_scalar("loss/step", loss, state.step)
            self._events.add_scalar("lr", rate, state.step)

    def epoch(self, state: RunState) -> None:
        record = state.epochs[-1].to_dict()
        self._write({"event": "epoch", **record})
        if self._events is not None:
            for name, value in record.items():
                if name not in ("epoch", "steps", "samples"):
                    self._events.add_scalar(f"epoch/{name}", value, record["epoch"])

    def _write(self, entry: dict) -> None:
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line]


def _stays(line: str, state: RunState) -> bool:
    """Whether a line tells of what ``state`` has behind it; the last one may be torn."""
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    if entry.get("event") == "step":
        return entry["step"] <= state.step
    return entry.get("event") == "epoch" and entry["epoch"] <= state.epoch


def _event_writer(directory: Path, step: int):
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError(
            f"tensorboard: {error}; install it with: pip install 'swift-hapi[tensorboard]'"
        ) from None
    # What an interrupted run wrote after the checkpoint is not shown.
    return SummaryWriter(str(directory), purge_step=step + 1 if step else None)
