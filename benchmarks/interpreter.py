"""What the interpreter costs beside the plain module: paired, interleaved, in one process.

The interpreter's head at the last cut is the whole network. It is compared with the module in eval
mode under ``inference_mode``:

``same``
   a module that holds the very tensors of the head (aligned, read from an extractor file), fed
   the same images in channels_last: what is left is the interpreter. The goals are for this.
``user``
   the module as it is made, fed plain contiguous images.
``channels_last``
   the module after ``.to(memory_format=torch.channels_last)``, fed images in channels_last.
``noise``
   the plain module with itself: how far from 1 a ratio of equals is on this machine.

Each pair is run A B B A again and again, with one thread and the allocator set as in the engine
and the trainer (by default glibc takes memory from the kernel anew for every activation, and how
often depends on chance in the order of frees); a round's ratio is B's time by A's. Wall
time and CPU time of the thread are reported: the latter does not count what others on the machine
did, and decides whether a goal is met.

    python -m benchmarks.interpreter --json out.json [--quick]
"""

from __future__ import annotations

import argparse
import copy
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from benchmarks.common import percentile, table, write_json
from hapi_compute.models import load_model
from swift_hapi.graph.allocator import keep_freed_memory
from swift_hapi.graph.extractor import Extractor, load_extractor, save_extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import make_extractor

Call = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Setting:
    """:param goal: of the median ratio in ``same``
    :param calls: in one measurement, so that it is long beside the clock and the scheduler
    """

    model: str
    batch: int
    goal: float
    calls: int
    rounds: int
    quick_rounds: int


SETTINGS = (
    Setting("resnet50", 8, 1.03, 1, 16, 5),
    Setting("mobilenet_v3_small", 1, 1.10, 10, 120, 60),
)
SEED = 3


@dataclass(frozen=True)
class Pair:
    name: str
    plain: Call
    other: Call
    x: torch.Tensor


def _with_tensors(module: nn.Module, extractor: Extractor) -> nn.Module:
    """A copy of the module on the extractor's own tensors."""
    twin = copy.deepcopy(module)
    twin.load_state_dict(extractor.tensors, strict=True, assign=True)
    return twin.eval()


def _plain(module: nn.Module) -> Call:
    def call(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return module(x)

    return call


def pairs(setting: Setting) -> list[Pair]:
    """:raises RuntimeError: the head computes something else than the module it is compared with
    on the same tensors: no time would mean anything
    """
    loaded = load_model(setting.model, "random:1")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.safetensors"
        save_extractor(make_extractor(loaded.module, None, loaded.input_shape), path)
        extractor = load_extractor(path)
    head = Head(extractor, extractor.cuts[-1])
    generator = torch.Generator().manual_seed(SEED)
    x = torch.rand((setting.batch, *loaded.input_shape), generator=generator)
    last = x.contiguous(memory_format=torch.channels_last)
    same = _plain(_with_tensors(loaded.module, extractor))
    converted = copy.deepcopy(loaded.module).to(memory_format=torch.channels_last)
    if not torch.equal(head(last), same(last)):
        raise RuntimeError(f"{setting.model}: the head's output is not the module's")
    return [
        Pair("same", same, head, last),
        Pair("user", _plain(loaded.module), head, x),
        Pair("channels_last", _plain(converted), head, last),
        Pair("noise", same, same, last),
    ]


def _measure(call: Call, x: torch.Tensor, calls: int) -> tuple[float, float]:
    """Wall and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(calls):
        call(x)
    return (time.perf_counter() - wall) / calls, (time.thread_time() - cpu) / calls


def compare(pair: Pair, setting: Setting, rounds: int) -> dict:
    """One row of the report: medians over the rounds, and the quartiles of the CPU ratio."""
    walls, cpus, plain, other = [], [], [], []
    for call in (pair.plain, pair.other, pair.plain):
        call(pair.x)
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            a, b, c, d = (
                _measure(call, pair.x, setting.calls)
                for call in (pair.plain, pair.other, pair.other, pair.plain)
            )
            walls.append((b[0] + c[0]) / (a[0] + d[0]))
            cpus.append((b[1] + c[1]) / (a[1] + d[1]))
            plain.append((a[1] + d[1]) / 2)
            other.append((b[1] + c[1]) / 2)
    finally:
        gc.enable()
    return {
        "model": setting.model,
        "batch": setting.batch,
        "pair": pair.name,
        "rounds": rounds,
        "plain_cpu_ms": 1e3 * statistics.median(plain),
        "other_cpu_ms": 1e3 * statistics.median(other),
        "cpu_ratio": statistics.median(cpus),
        "cpu_low": percentile(cpus, 25),
        "cpu_high": percentile(cpus, 75),
        "wall_ratio": statistics.median(walls),
    }


def summary(rows: list[dict]) -> dict:
    """Per setting the ratios that the goals are for; ``met`` if CPU time says so of all."""
    found: dict = {}
    for setting in SETTINGS:
        own = {row["pair"]: row for row in rows if row["model"] == setting.model}
        found[f"{setting.model}_b{setting.batch}"] = {
            "goal": setting.goal,
            "cpu_ratio": own["same"]["cpu_ratio"],
            "wall_ratio": own["same"]["wall_ratio"],
            "noise_cpu": own["noise"]["cpu_ratio"],
            "noise_wall": own["noise"]["wall_ratio"],
            "met": own["same"]["cpu_ratio"] <= setting.goal,
        }
    return {**found, "met": all(case["met"] for case in found.values())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under 3 minutes")
    args = parser.parse_args()
    # As the engine and the trainer have it.
    keep_freed_memory()
    torch.set_num_threads(1)

    rows = []
    for setting in SETTINGS:
        rounds = setting.quick_rounds if args.quick else setting.rounds
        for pair in pairs(setting):
            rows.append(compare(pair, setting, rounds))
            print(f"{setting.model}: {pair.name} done", file=sys.stderr, flush=True)
    total = summary(rows)
    print(table(rows))
    for name, case in total.items():
        print(f"{name}: {case}")
    write_json(args.json, "interpreter", rows, total)
    return 0 if total["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
