"""A program: one rank of a training run, which writes down what it saw.

Arguments: JSON with ``auth`` (url, user, key), ``url``, ``out`` and ``options`` of the run; with
``moves``, the chooser goes to another candidate whenever it is asked; with ``refused`` (a number
for each rank), so many answers with features do not come; with ``fails``, [rank, step], that rank
fails before that step. Rank and ranks come from the environment, as ``torchrun`` sets it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from hapi_compute.data import readers
from hapi_compute.data.routing import Router
from hapi_compute.plan.choice import Chooser, Decision
from hapi_compute.store.auth import Credentials
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import Transient
from hapi_compute.train import job, pilot, planning
from hapi_compute.train.config import TrainConfig
from hapi_compute.train.stepper import Stepper

RANK = int(os.environ.get("RANK", "0"))


def counted(module, name: str, calls: list) -> None:
    """``module.name`` leaves a trace of every call: its arguments."""
    inner = getattr(module, name)

    def outer(*args, **kwargs):
        calls.append(args)
        return inner(*args, **kwargs)

    setattr(module, name, outer)


def moving() -> None:
    """Every observation moves the split, and there are many."""
    pilot._BATCHES, pilot._SHARDS, pilot._SECONDS = 1, -1, 0.0

    def decide(self) -> Decision:
        names = list(self.demands)
        self.current = names[(names.index(self.current) + 1) % len(names)]
        return Decision(self.current, None, "on and on")

    Chooser.decide = decide


def refusing(count: int) -> None:
    inner, refused = readers.get_features, []

    def get_features(*args, **kwargs):
        if len(refused) < count:
            refused.append(args)
            raise Transient("out of order", status=503)
        return inner(*args, **kwargs)

    readers.get_features = get_features


def failing(step: int) -> None:
    inner = Stepper.step

    def outer(self, batch, state, *args):
        if state.step == step:
            raise OSError("the disk is gone")
        return inner(self, batch, state, *args)

    Stepper.step = outer


def main(ask: dict) -> None:
    profiled, switched = [], []
    counted(planning, "probe", profiled)
    counted(Router, "switch", switched)
    if ask.get("moves"):
        moving()
    if "refused" in ask:
        refusing(ask["refused"][RANK])
    if ask.get("fails", [None])[0] == RANK:
        failing(ask["fails"][1])
    store = SwiftClient(Credentials(*ask["auth"]))
    report = job.run(TrainConfig(ask["url"], **ask["options"]), store)
    saw = {
        "profiles": len(profiled),
        "switches": [args[1] for args in switched],
        "counts": store.counters.snapshot().__dict__,
        "report": report.to_dict(),
    }
    Path(ask["out"], f"rank{RANK}.json").write_text(json.dumps(saw))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
