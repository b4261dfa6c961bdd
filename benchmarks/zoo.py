"""Every model of the zoo: traced, written, loaded by the interpreter, and bit-equal at its cuts.

For each model an extractor of all of it is made and written to a file, the file is loaded as the
storage tier loads it, and at every Pareto cut and five random ones

* the head's output is compared with what the live model computes at that place, and
* the tail's output for it with the live model's output,

bit for bit, for a batch of two.

    python -m benchmarks.zoo --json out.json [--quick] [--models a,b] [--rst zoo.rst]
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import fx, nn

from benchmarks.common import machine, write_json
from benchmarks.zoo_models import QUICK, Entry, entries
from hapi_compute.models import LoadedModel, load_model
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import load_extractor, save_extractor
from swift_hapi.graph.interpreter import Head, Tail
from swift_hapi.graph.split import make_extractor
from swift_hapi.graph.tracer import fx_trace

BATCH = 2
RANDOM_CUTS = 5


class _Recorder(fx.Interpreter):
    """Runs the live model node by node, by torch's own interpreter, and keeps what is asked for.

    What it keeps is a copy: a later operation may work in place.
    """

    def __init__(self, model: nn.Module, graph: fx.Graph, replaced: dict, wanted: set[str]):
        super().__init__(model, garbage_collect_values=True, graph=graph)
        self._replaced = replaced
        self._wanted = wanted
        self.kept: dict[str, torch.Tensor] = {}

    def run_node(self, node: fx.Node):
        value = super().run_node(node)
        if node.name in self._wanted:
            self.kept[node.name] = value.clone()
        return value

    def call_module(self, target, args, kwargs):
        if target in self._replaced:
            return self._replaced[target](*args, **kwargs)
        return super().call_module(target, args, kwargs)


def _record(loaded: LoadedModel, x: torch.Tensor, wanted: set[str]) -> dict[str, torch.Tensor]:
    """Values of the live model's nodes, by name."""
    graph, tracer = fx_trace(loaded.module, tuple(x.shape[1:]), x.dtype)
    recorder = _Recorder(loaded.module, graph, tracer.norms, wanted)
    for name, value in tracer.parked.items():
        setattr(loaded.module, name, value)
    recorder.run(x.clone(), *tracer.constants.values(), enable_io_processing=False)
    return recorder.kept


def _input(loaded: LoadedModel, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if loaded.dtype == torch.int64:
        return torch.randint(0, 1000, (BATCH, *shape), generator=generator)
    x = torch.rand((BATCH, *shape), generator=generator)
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def _chosen(cuts: Sequence[Cut], seed: str) -> list[Cut]:
    others = [cut for cut in cuts if not cut.pareto]
    some = random.Random(seed).sample(others, min(RANDOM_CUTS, len(others)))
    return sorted([cut for cut in cuts if cut.pareto] + some, key=lambda cut: cut.index)


def check(entry: Entry, directory: Path) -> dict:
    """One row of the report; ``failures`` lists what differs."""
    started = time.perf_counter()
    loaded = load_model(entry.model, "random:1")
    shape = loaded.input_shape if entry.side is None else (3, entry.side, entry.side)
    x = _input(loaded, shape, 5)
    path = directory / "model.safetensors"
    digest = save_extractor(make_extractor(loaded.module, None, shape, loaded.dtype), path)
    extractor = load_extractor(path)
    size = path.stat().st_size
    path.unlink()
    failures = [] if extractor.digest == digest else ["digest"]

    chosen = _chosen(extractor.cuts, entry.name)
    with torch.inference_mode():
        live = _record(loaded, x, {cut.name for cut in chosen})
        expected = loaded.module(x.clone())
    parameters = sum(p.numel() for p in loaded.module.parameters())
    del loaded
    gc.collect()
    for cut in chosen:
        # As features travel: in order, and in memory of their own.
        features = Head(extractor, cut)(x).clone(memory_format=torch.contiguous_format)
        at = live.get(cut.name, x)
        if features.shape != (BATCH, *cut.shape) or not torch.equal(features, at):
            failures.append(f"head at {cut.name}: {_difference(features, at)}")
        out = Tail(extractor, cut)(features)
        if not torch.equal(out, expected):
            failures.append(f"tail at {cut.name}: {_difference(out, expected)}")
    return {
        "model": entry.name,
        "library": entry.library,
        "family": entry.family,
        "input": "x".join(map(str, shape)),
        "parameters": parameters,
        "file_bytes": size,
        "nodes": len(extractor.graph.nodes),
        "cuts": len(extractor.cuts),
        "pareto": sum(cut.pareto for cut in extractor.cuts),
        "tested": len(chosen),
        "fixed": extractor.fixed,
        "digest": digest,
        "seconds": round(time.perf_counter() - started, 1),
        "failures": failures,
    }


def _difference(one: torch.Tensor, other: torch.Tensor) -> str:
    if one.shape != other.shape:
        return f"{list(one.shape)} instead of {list(other.shape)}"
    return f"{(one - other).abs().max().item():.3g} of {other.abs().max().item():.3g}"


def run(models: Sequence[Entry]) -> list[dict]:
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for entry in models:
            try:
                row = check(entry, Path(directory))
            except Exception as error:  # noqa: BLE001 - one model must not end the run
                row = {
                    "model": entry.name, "library": entry.library, "family": entry.family,
                    "tested": 0, "failures": [f"{type(error).__name__}: {error}"],
                }  # fmt: skip
            rows.append(row)
            verdict = "ok" if not row["failures"] else f"FAILED {row['failures'][:3]}"
            print(f"{entry.name}: {row['tested']} cuts, {verdict}", file=sys.stderr, flush=True)
            gc.collect()
    return rows


def summary(rows: Sequence[dict]) -> dict:
    return {
        "models": len(rows),
        "torchvision": sum(row["library"] == "torchvision" for row in rows),
        "timm_families": len({row["family"] for row in rows if row["library"] == "timm"}),
        "user": sum(row["library"] == "user" for row in rows),
        "cuts_tested": sum(row["tested"] for row in rows),
        "failures": sum(bool(row["failures"]) for row in rows),
        "seconds": round(sum(row.get("seconds", 0) for row in rows), 1),
    }


def rst(rows: Sequence[dict], total: dict) -> str:
    """The page of the manual."""
    on = machine()
    lines = [
        "Models tried",
        "============",
        "",
        "Written by ``python -m benchmarks.zoo --rst doc/source/zoo.rst``. Each model was traced,",
        "written as an extractor file, loaded by the interpreter, and compared with the live",
        "model bit for bit at every Pareto cut and at five random ones, for a batch of two: the",
        "head's output with what the live model computes at that place, and the tail's output",
        "with the live model's.",
        "",
        f"{total['models']} models ({total['torchvision']} of torchvision, "
        f"{total['timm_families']} families of timm, {total['user']} user's own), "
        f"{total['cuts_tested']} cuts, {total['failures']} failures; torch {on['torch']}, "
        f"torchvision {on['torchvision']}.",
        "",
        "*Fixed*: the model decides by the size of its input, so that its extractor file holds",
        "for the size it was made for only.",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "",
    ]
    head = ("model", "input", "Mparam", "nodes", "cuts", "Pareto", "tested", "fixed", "equal")
    table = [head]
    for row in rows:
        if "cuts" not in row:
            table.append((row["model"], *[""] * 7, "no"))
            continue
        table.append((
            f"``{row['model']}``", row["input"], f"{row['parameters'] / 1e6:.1f}", row["nodes"],
            row["cuts"], row["pareto"], row["tested"], "yes" if row["fixed"] else "",
            "no" if row["failures"] else "yes",
        ))  # fmt: skip
    for cells in table:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}".rstrip() for i, cell in enumerate(cells)]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--rst", metavar="PATH", help="write the manual's page")
    parser.add_argument("--quick", action="store_true", help="a few small models, 3 minutes")
    parser.add_argument("--models", metavar="A,B", help="only these")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    every = entries()
    wanted = args.models.split(",") if args.models else QUICK if args.quick else None
    chosen = [entry for entry in every if wanted is None or entry.name in wanted]
    if wanted is not None and len(chosen) != len(set(wanted)):
        parser.error(f"unknown: {', '.join(set(wanted) - {entry.name for entry in every})}")
    rows = run(chosen)
    total = summary(rows)
    write_json(args.json, "zoo", rows, total)
    if args.rst:
        Path(args.rst).write_text(rst(rows, total))
    print(total)
    return 1 if total["failures"] else 0


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
