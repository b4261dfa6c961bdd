"""The engine over its socket, against a loop that decodes and runs the head, on the same core.

Short runs by turns, so that what else the machine does hits both alike; and the CPU time of both
processes, which it hits less.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.load.client import EngineConnection
from benchmarks.load.setting import TRANSFORM, Network, Setting, cores
from benchmarks.photos import photo, tar

IMAGES = 32
_STREAMS = 3
_BATCHES = (8, 32)


def engine_vs_bare(
    setting: Setting, network: str, pairs: int, shards: int
) -> tuple[list[dict], dict]:
    """Alternating runs of ``shards`` shards each; ratios of rates are above 1 where the engine is
    the faster one."""
    setting.configure(measure_memory="false")
    known = setting.networks[network]
    body = tar({f"{i:04d}.jpg": photo(i) for i in range(IMAGES)})
    shard = setting.cluster.dir / "bare.tar"
    shard.write_bytes(body)
    cases = []
    with _Bare(known, shard) as bare:
        _engine_seconds(setting, known, body, 2)  # warm up
        bare.run(_BATCHES[-1], 1)
        costs = {batch: min(bare.run(batch, 1)[1] for _ in range(3)) for batch in _BATCHES}
        best = min(costs, key=costs.__getitem__)
        for turn in range(pairs):
            order = ("engine", "bare") if turn % 2 else ("bare", "engine")
            rate, cpu = {}, {}
            for who in order:
                if who == "bare":
                    seconds, cpu[who] = bare.run(best, shards)
                else:
                    used = _cpu_seconds(setting.engine_pid)
                    seconds = _engine_seconds(setting, known, body, shards)
                    cpu[who] = _cpu_seconds(setting.engine_pid) - used
                rate[who] = shards * IMAGES / seconds
            cases.append(
                {
                    "case": f"bare {network}",
                    "turn": turn,
                    "engine_per_s": rate["engine"],
                    "bare_per_s": rate["bare"],
                    "ratio": rate["engine"] / rate["bare"],
                    "cpu_ratio": cpu["bare"] / cpu["engine"],
                }
            )
    return cases, {
        "engine_vs_bare_ratio": statistics.median(case["ratio"] for case in cases),
        "engine_vs_bare_cpu_ratio": statistics.median(case["cpu_ratio"] for case in cases),
        "bare_batch": best,
    }


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _engine_seconds(setting: Setting, network: Network, body: bytes, shards: int) -> float:
    left = iter(range(shards))
    errors: list[str] = []

    def stream() -> None:
        connection = EngineConnection(setting.cluster.engine_socket)
        for number in left:
            headers = {
                "X-Hapi-Model": network.digest,
                "X-Hapi-Split": network.cut,
                "X-Hapi-Transform": TRANSFORM,
                "X-Hapi-Account": "AUTH_bench",
                "X-Hapi-Source-Etag": str(number),
            }
            connection.request("POST", "/v1/features", body, headers)
            answer = connection.getresponse()
            if answer.status != 200:
                errors.append(f"{answer.status} {answer.read(300)!r}")
            answer.read()
        connection.close()

    threads = [threading.Thread(target=stream) for _ in range(min(_STREAMS, shards))]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise RuntimeError(errors[0])
    return time.perf_counter() - began


class _Bare:
    """A process that runs the loop when it is told to."""

    def __init__(self, network: Network, shard: Path):
        core = cores()[1]
        argv = [sys.executable, "-m", "benchmarks.load.bare"]
        argv += [str(network.path), network.cut, str(shard), str(core)]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> _Bare:
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError("the bare loop does not start")
        return self

    def __exit__(self, *_) -> None:
        self._process.stdin.close()
        self._process.wait()

    def run(self, batch: int, shards: int) -> tuple[float, float]:
        """Seconds, and CPU seconds, for that many shards."""
        self._process.stdin.write(f"{batch} {shards}\n")
        self._process.stdin.flush()
        seconds, cpu = map(float, self._process.stdout.readline().split())
        return seconds, cpu


def _loop(argv: list[str]) -> None:
    """What somebody would write who has the files at hand."""
    os.sched_setaffinity(0, {int(argv[3])})
    import numpy as np
    import torch

    from swift_hapi.graph.allocator import keep_freed_memory
    from swift_hapi.graph.extractor import load_extractor
    from swift_hapi.graph.interpreter import Head
    from swift_hapi.protocol.limits import Limits
    from swift_hapi.protocol.transform import parse_transform
    from swift_hapi.samples.decode import decode_sample
    from swift_hapi.samples.shard import read_shard

    torch.set_num_threads(1)
    keep_freed_memory()
    extractor = load_extractor(argv[0])
    head = Head(extractor, extractor.resolve(argv[1]))
    data, spec, limits = Path(argv[2]).read_bytes(), parse_transform(TRANSFORM), Limits()
    print("ready", flush=True)
    for line in sys.stdin:
        batch, shards = map(int, line.split())
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(shards):
            samples = read_shard(data, "shard.tar", limits).samples
            rows = []
            for start in range(0, len(samples), batch):
                some = samples[start : start + batch]
                images = np.stack([decode_sample(sample, spec, limits) for sample in some])
                rows.append(head(torch.from_numpy(images)).numpy())
            np.concatenate(rows)
        print(time.perf_counter() - began, time.process_time() - cpu, flush=True)


if __name__ == "__main__":
    _loop(sys.argv[1:])
