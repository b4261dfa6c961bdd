"""Predicted against measured memory of whole networks, under the engine's allocator settings.

A model's memory is predicted as the engine does it: bytes alive by a walk over the graph, and two
real runs (batches of 4 and 16) in a process of their own. It is measured for every batch in yet
another process: most memory held while the network runs that many samples, its input and output
included, beyond what a warm process with the weights has. ``measured``: free memory is returned
before every node, the least that a run can do with. ``kept_within``: the same as the engine does
it that has just the predicted memory, returning what is free only when it must; ``slower``: CPU
time of that over a run with memory to spare, whose peak is ``unbound``.

    python -m benchmarks.memory_model --json out.json [--quick] [--threads N]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.common import table, write_json
from hapi_compute.models import load_model
from swift_hapi.graph.extractor import save_extractor
from swift_hapi.graph.liveness import live_profile
from swift_hapi.graph.memory import CALIBRATED_AT, calibrate, measure_command
from swift_hapi.graph.split import make_extractor

MODELS = ("resnet50", "vgg11", "densenet121", "vit_b_16", "efficientnet_b0")
BATCHES = (1, 2, 4, 8, 12, 16, 24, 32)
#: from this batch on the prediction may be so many times the measurement
JUDGED_FROM, MOST = 8, 1.35
MB = 1e6


def _measure(path: Path, batch: int, threads: int, *options: str) -> dict:
    command = [*measure_command(path, (batch,), threads), *options]
    done = subprocess.run(command, capture_output=True, check=True)
    return json.loads(done.stdout)[str(batch)]


def run(name: str, batches: tuple[int, ...], threads: int) -> list[dict]:
    loaded = load_model(name, "random:1")
    extractor = make_extractor(loaded.module, None, loaded.input_shape)
    del loaded
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"{name}.safetensors"
        save_extractor(extractor, path)
        model = calibrate(path, extractor, threads=threads)
        profile = live_profile(extractor, extractor.cuts[-1])
        memory = model.of(profile)
        for batch in batches:
            tight = _measure(path, batch, threads)
            within = _measure(path, batch, threads, "--within", f"{model.once},{model.times}")
            free = _measure(path, batch, threads, "--free")
            predicted = memory.needs(batch)
            rows.append(
                {
                    "model": name,
                    "batch": batch,
                    "alive_mb": batch * profile.peak / MB,
                    "measured_mb": tight["peak"] / MB,
                    "predicted_mb": predicted / MB,
                    "ratio": predicted / tight["peak"],
                    "kept_within_mb": within["peak"] / MB,
                    "returns": within["trims"],
                    "slower": within["cpu"] / free["cpu"],
                    "unbound_mb": free["peak"] / MB,
                    "calibrated": batch in CALIBRATED_AT,
                }
            )
            print(f"{name} {batch}: {rows[-1]['ratio']:.3f}", file=sys.stderr, flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--quick", action="store_true", help="two models, four batches")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    models, batches = (MODELS[::4], (1, 8, 16, 32)) if args.quick else (MODELS, BATCHES)
    rows = []
    for name in models:
        rows += run(name, batches, args.threads)
    judged = [row["ratio"] for row in rows if row["batch"] >= JUDGED_FROM]
    summary = {
        "allocator": "glibc, one arena, large blocks in the heap (M_MMAP_MAX=0), never trimmed "
        "by itself",
        "threads": args.threads,
        "never_under": all(row["ratio"] >= 1 for row in rows),
        "least": min(row["ratio"] for row in rows),
        "most_from_8": max(judged),
        "kept_within": all(row["kept_within_mb"] <= row["predicted_mb"] for row in rows),
        "most_slower": max(row["slower"] for row in rows),
    }
    write_json(args.json, "memory_model", rows, summary)
    print(table(rows))
    print(summary)
    return 0 if summary["never_under"] and summary["most_from_8"] <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
