"""The digests that models get, to be compared with those of another installation.

Same model, same versions of torch, torchvision and timm: the same bytes, and so the same name in
every store. This program exports some models, with the reproducible weights ``random:1``, and
prints what ``sha256sum`` says of the files. Run it in two installations, and compare:

    python -m benchmarks.digests --json one.json
    python -m benchmarks.digests --against one.json

``--vary`` exports them several times over, in processes that differ in what must not matter: the
hash seed, threads, the working directory, locale, time zone and optimisation level.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import machine, write_json

ROOT = Path(__file__).resolve().parent.parent
USER_FILE = Path(__file__).with_name("user_models.py")


@dataclass(frozen=True)
class Case:
    """
    :param freeze_at: cut or module; None for the whole model
    :param side: of the input, None for the model's own
    """

    name: str
    freeze_at: str | None = None
    side: int | None = None

    @property
    def model(self) -> str:
        own = self.name.removeprefix("user:")
        return self.name if own == self.name else f"{USER_FILE}:{own}"


CASES = (
    Case("resnet18", "layer4"),
    Case("densenet121", "features.denseblock3", 64),
    Case("mobilenet_v3_small", "features.12"),
    Case("vit_b_16", "encoder.layers.encoder_layer_10"),
    Case("swin_t", "features.5"),
    Case("timm/tf_efficientnet_lite0", "blocks.6"),
    Case("timm/xcit_nano_12_p16_224", "blocks.11"),
    Case("timm/mobilevit_s", "stages.4", 64),
    Case("user:text"),
    Case("user:net"),
)
#: environments in which the digests must be the same; every one differs from the others in all
VARIATIONS = (
    {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "LC_ALL": "C", "TZ": "UTC"},
    {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "2", "LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo"},
    {"PYTHONHASHSEED": "4242", "OMP_NUM_THREADS": "3", "LC_ALL": "POSIX",
     "TZ": "America/Lima", "PYTHONOPTIMIZE": "1", "MALLOC_PERTURB_": "85"},
)  # fmt: skip


def digest(case: Case) -> dict:
    """Export one model; its row of the report.

    :raises RuntimeError: the file is not named by its bytes
    """
    from hapi_compute.models import load_model
    from swift_hapi.graph.extractor import save_extractor
    from swift_hapi.graph.split import make_extractor

    loaded = load_model(case.model, "random:1")
    shape = loaded.input_shape if case.side is None else (3, case.side, case.side)
    extractor = make_extractor(loaded.module, case.freeze_at, shape, loaded.dtype)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.safetensors"
        name = save_extractor(extractor, path)
        data = path.read_bytes()
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if name != found:
        raise RuntimeError(f"{case.name}: the file is called {name} and is {found}")
    return {
        "model": case.name,
        "freeze_at": extractor.cuts[-1].name,
        "input": list(shape),
        "bytes": len(data),
        "digest": found,
    }


def differences(ours: list[dict], theirs: list[dict]) -> list[str]:
    """What is not the same, in words; models that only one of them has are differences too."""
    one, other = ({row["model"]: row["digest"] for row in rows} for rows in (ours, theirs))
    return [
        f"{name}: {one.get(name, 'absent')} here, {other.get(name, 'absent')} there"
        for name in sorted(one.keys() | other.keys())
        if one.get(name) != other.get(name)
    ]


def _vary(models: list[str]) -> list[list[dict]]:
    runs = []
    for settings in VARIATIONS:
        with tempfile.TemporaryDirectory() as directory:
            report = Path(directory) / "digests.json"
            command = [sys.executable, "-m", "benchmarks.digests", "--json", str(report)]
            command += ["--models", ",".join(models), "--threads", settings["OMP_NUM_THREADS"]]
            environment = {**os.environ, **settings, "PYTHONPATH": str(ROOT)}
            subprocess.run(
                command, cwd=directory, env=environment, check=True, stdout=subprocess.DEVNULL
            )
            runs.append(json.loads(report.read_text())["cases"])
    return runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--against", metavar="JSON", help="an earlier report to agree with")
    parser.add_argument("--models", metavar="A,B", help="only these")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--vary", action="store_true", help="also in other environments")
    parser.add_argument("--quick", action="store_true", help="a few small models")
    args = parser.parse_args()

    import torch

    torch.set_num_threads(args.threads)
    small = [case.name for case in CASES if case.side is not None or "user:" in case.name]
    wanted = args.models.split(",") if args.models else small if args.quick else None
    chosen = [case for case in CASES if wanted is None or case.name in wanted]
    if wanted is not None and len(chosen) != len(set(wanted)):
        parser.error(f"unknown: {', '.join(set(wanted) - {case.name for case in CASES})}")

    rows = []
    for case in chosen:
        rows.append(digest(case))
        print(f"{rows[-1]['digest']}  {case.name} at {rows[-1]['freeze_at']}", flush=True)
    wrong: dict[str, list[str]] = {}
    if args.vary:
        for settings, run in zip(VARIATIONS, _vary([case.name for case in chosen]), strict=True):
            label = " ".join(f"{key}={value}" for key, value in settings.items())
            wrong[label] = differences(rows, run)
    if args.against:
        report = json.loads(Path(args.against).read_text())
        for package in ("torch", "torchvision", "timm"):
            here, there = machine().get(package), report["machine"].get(package)
            if here != there:
                print(f"note: {package} {here} here, {there} there", file=sys.stderr)
        names = {case.name for case in chosen}
        theirs = report["cases"]
        if wanted is not None:
            theirs = [row for row in theirs if row["model"] in names]
        wrong[args.against] = differences(rows, theirs)
    for label, found in wrong.items():
        print(f"{label}: {'the same' if not found else 'DIFFERENT'}")
        for line in found:
            print(f"  {line}")
    failures = sum(map(len, wrong.values()))
    total = {"models": len(rows), "comparisons": len(wrong), "differences": failures}
    write_json(args.json, "digests", rows, total)
    print(total)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
