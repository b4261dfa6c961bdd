"""Tens of thousands of wrong or hostile extractor files: each is loaded and run, or refused.

Every file goes to a worker process, which loads it as an engine does and, if it loads and an
engine would grant it the memory, runs it. Wanted: it loads and runs, or is refused with a typed
error. Not wanted: any other exception, a crash, more memory than the cap and 256 MB, more than
five seconds of the one CPU that a worker has, features that depend on the neighbours in a batch.

    python -m benchmarks.fuzz_extractor --json out.json [--count 20000] [--quick] [--seed N]

CPU time is what counts, because the clock's depends on what else the machine does; a worker that
says nothing for a minute is killed, and that counts as a hang.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.common import table, write_json
from benchmarks.corpus import corpus
from benchmarks.fuzz_worker import CAP, work
from benchmarks.hostile import HOSTILE
from benchmarks.mutations import CHANGES

LIMIT_SECONDS = 5.0
LIMIT_BYTES = CAP + 256 * 10**6
#: a worker that says nothing for so long is killed
PATIENCE = 60.0
#: every so many files one is written from scratch to do harm
HOSTILE_EVERY = 4


class Worker:
    """A worker process, replaced when it dies."""

    def __init__(self):
        self._context = multiprocessing.get_context("spawn")
        self._process = None

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        if self._pipe.recv() != "ready":
            raise OSError("the worker does not start")

    def try_file(self, data: bytes) -> tuple[str, str, float, int]:
        """(verdict, words, seconds, bytes)."""
        if self._process is None:
            self._start()
        started = time.perf_counter()
        try:
            self._pipe.send_bytes(data)
            if not self._pipe.poll(PATIENCE):
                self.stop()
                return "hung", "", time.perf_counter() - started, 0
            return self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join(5)
            code = self._process.exitcode
            self.stop()
            return "crashed", f"exit code {code}", time.perf_counter() - started, 0

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None


def files(seed: int, count: int):
    """(kind, bytes) of each file; the same for the same seed."""
    good = corpus()
    kinds = list(CHANGES)
    hostile = list(HOSTILE)
    for i in range(count):
        rng = random.Random(f"{seed}/{i}")
        if i % HOSTILE_EVERY == 0:
            kind = hostile[i // HOSTILE_EVERY % len(hostile)]
            yield kind, HOSTILE[kind](rng)
        else:
            kind = kinds[i % len(kinds)]
            yield kind, CHANGES[kind](rng, rng.choice(good))


def run(seed: int, count: int, keep: Path | None) -> list[dict]:
    worker = Worker()
    rows: dict[str, dict] = defaultdict(
        lambda: {"files": 0, "loaded": 0, "refused": 0, "failures": 0, "seconds": 0.0, "mb": 0.0}
    )
    failures = []
    started = time.perf_counter()
    try:
        for i, (kind, data) in enumerate(files(seed, count)):
            verdict, words, seconds, nbytes = worker.try_file(data)
            if verdict in ("loaded", "refused"):
                if nbytes > LIMIT_BYTES:
                    verdict, words = "memory", f"{nbytes / 1e6:.0f} MB; {words}"
                elif seconds > LIMIT_SECONDS:
                    verdict, words = "slow", f"{seconds:.1f} s; {words}"
            row = rows[kind]
            row["files"] += 1
            row["seconds"] = max(row["seconds"], seconds)
            row["mb"] = max(row["mb"], nbytes / 1e6)
            if verdict in ("loaded", "refused"):
                row[verdict] += 1
            else:
                row["failures"] += 1
                failures.append({"kind": kind, "number": i, "verdict": verdict, "words": words})
                print(f"{i} {kind}: {verdict}: {words}", file=sys.stderr, flush=True)
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{seed}-{i}-{kind.replace(' ', '_')}").write_bytes(data)
            if i % 1000 == 999:
                took = time.perf_counter() - started
                print(f"{i + 1} files, {took:.0f} s", file=sys.stderr, flush=True)
    finally:
        worker.stop()
    return [{"kind": kind, **row} for kind, row in sorted(rows.items())], failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--count", type=int, default=20_000, metavar="N")
    parser.add_argument("--quick", action="store_true", help="2000 files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write files that fail there")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    rows, failures = run(args.seed, 2000 if args.quick else args.count, args.keep)
    total = {
        "files": sum(row["files"] for row in rows),
        "loaded": sum(row["loaded"] for row in rows),
        "refused": sum(row["refused"] for row in rows),
        "failures": len(failures),
        "failed": failures[:50],
        "most_seconds": max(row["seconds"] for row in rows),
        "most_mb": max(row["mb"] for row in rows),
        "limit_seconds": LIMIT_SECONDS,
        "limit_mb": LIMIT_BYTES / 1e6,
    }
    write_json(args.json, "fuzz_extractor", rows, total)
    print(table(rows))
    print({key: value for key, value in total.items() if key != "failed"})
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
