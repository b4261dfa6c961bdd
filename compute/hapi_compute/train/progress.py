"""What a run tells while it goes on: bars on a terminal, lines elsewhere, nothing in tests."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_LINE_EVERY = 10.0  #: seconds between two lines about one epoch


class Progress:
    """Tells nothing; the others override what they show."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_exc) -> None:
        """Tidy the terminal up, after a failure too."""

    def note(self, text: str) -> None:
        """Something worth knowing, once."""

    def epoch_starts(self, epoch: int, epochs: int, steps: int | None, done: int) -> None:
        """``steps`` None when not known; ``done`` of them lie behind a resumed run."""

    def step(self, epoch: int, step: int, loss: float) -> None:
        """An optimiser step is done; ``step`` counts over the whole run."""

    def epoch_ends(self, epoch: int, summary: str) -> None:
        """All of an epoch is done, its validation too."""


class Lines(Progress):
    """Plain lines, a few at a time."""

    def __init__(self, stream: TextIO | None = None):
        self._stream = stream or sys.stderr
        self._last = time.monotonic()

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def step(self, epoch: int, step: int, loss: float) -> None:
        now = time.monotonic()
        if now - self._last >= _LINE_EVERY:
            self._last = now
            self.note(f"epoch {epoch + 1}: step {step + 1}, loss {loss:.4f}")

    def epoch_ends(self, epoch: int, summary: str) -> None:
        self._last = time.monotonic()
        self.note(summary)


class Bars(Progress):
    """A tqdm bar for each epoch."""

    def __init__(self):
        from tqdm import tqdm

        self._tqdm = tqdm
        self._bar = None

    def __exit__(self, *_exc) -> None:
        if self._bar is not None:
            self._bar.close()

    def note(self, text: str) -> None:
        self._tqdm.write(text, file=sys.stderr)

    def epoch_starts(self, epoch: int, epochs: int, steps: int | None, done: int) -> None:
        self._bar = self._tqdm(
            total=steps, initial=done, desc=f"epoch {epoch + 1}/{epochs}", unit="step",
            file=sys.stderr, leave=False,
        )  # fmt: skip

    def step(self, epoch: int, step: int, loss: float) -> None:
        self._bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
        self._bar.update()

    def epoch_ends(self, epoch: int, summary: str) -> None:
        self._bar.close()
        self.note(summary)


def for_terminal() -> Progress:
    """Bars where stderr is a terminal, lines where it is not."""
    return Bars() if sys.stderr.isatty() else Lines()
