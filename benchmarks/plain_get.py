"""What plain GETs notice of feature requests: latency with and without them, alternating.

One process sends GETs of a 1 KB object at a fixed rate, whatever the answers do (an open loop: a
slow server does not slow its own load down), and counts from the moment a GET was due. Another
keeps the engine busy with feature requests, or is idle, by turns.

    python -m benchmarks.plain_get --json out.json [--quick]
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.common import percentile, table, write_json
from benchmarks.photos import photo, tar
from swift_hapi.cluster import ClusterConfig, EmbeddedCluster

SENDERS = 16  #: connections of the open loop; more than rate x any sane latency
SIDE = 224
TRANSFORM = f"resize={SIDE}, crop={SIDE}, mean=(0.485 0.456 0.406), std=(0.229 0.224 0.225)"


@dataclass(frozen=True)
class Place:
    """How to reach what is measured."""

    storage_url: str
    token: str

    def get(self, connection: http.client.HTTPConnection, path: str, headers=None):
        connection.request("GET", path, headers={"X-Auth-Token": self.token, **(headers or {})})
        response = connection.getresponse()
        body = response.read()
        return response.status, body

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.storage_url).netloc, timeout=120)

    def path(self, *names: str) -> str:
        return "/".join([urlsplit(self.storage_url).path, *names])


def prepare(place: Place, model: str, images: int) -> dict[str, str]:
    """Store a small object, an extractor and a shard; the headers of a feature request."""
    import torch

    from hapi_compute.models import load_model
    from swift_hapi.graph.extractor import save_extractor
    from swift_hapi.graph.split import make_extractor

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "extractor.safetensors")
        extractor = make_extractor(load_model(model, "random:0").module, None, (3, SIDE, SIDE))
        digest = save_extractor(extractor, path)
        shard = tar({f"{i}.jpg": photo(i) for i in range(images)})
        connection = place.connect()
        for names, body in (
            (("plain",), b""),
            (("hapi-models",), b""),
            (("plain", "small"), os.urandom(1024)),
            (("plain", "shard.tar"), shard),
            (("hapi-models", f"{digest[7:]}.safetensors"), path.read_bytes()),
        ):
            connection.request("PUT", place.path(*names), body, {"X-Auth-Token": place.token})
            response = connection.getresponse()
            response.read()
            if response.status not in (201, 202):
                raise RuntimeError(f"PUT {'/'.join(names)}: {response.status}")
    return {
        "X-Hapi-Model": digest,
        "X-Hapi-Split": extractor.cuts[-2].name,
        "X-Hapi-Transform": TRANSFORM,
    }


def feature_load(place: Place, headers: dict, streams: int, busy, stop, bytes_in, answers) -> None:
    """Process: ``streams`` feature requests at a time while ``busy`` is set."""

    def stream() -> None:
        connection = place.connect()
        while not stop.is_set():
            if not busy.wait(0.1):
                continue
            status, body = place.get(connection, place.path("plain", "shard.tar"), headers)
            with answers.get_lock():
                answers.value += 1
                bytes_in.value += len(body)
            if status != 200:
                raise RuntimeError(f"feature request: {status} {body[:300]!r}")

    with ThreadPoolExecutor(streams) as pool:
        for future in [pool.submit(stream) for _ in range(streams)]:
            future.result()


def open_loop(place: Place, rate: float, seconds: float) -> list[float]:
    """Milliseconds from when each GET was due until its last byte."""
    latencies: list[float] = []
    local = threading.local()
    start = time.perf_counter() + 0.05

    def send(due: float) -> None:
        if not hasattr(local, "connection"):
            local.connection = place.connect()
        status, body = place.get(local.connection, place.path("plain", "small"))
        if status != 200 or len(body) != 1024:
            raise RuntimeError(f"plain GET: {status}, {len(body)} bytes")
        latencies.append((time.perf_counter() - due) * 1e3)

    with ThreadPoolExecutor(SENDERS) as pool:
        futures = []
        for i in range(int(rate * seconds)):
            due = start + i / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            futures.append(pool.submit(send, due))
        for future in futures:
            future.result()
    return latencies


def alternate(place: Place, headers: dict, args: argparse.Namespace) -> list[dict]:
    """Measurements without and with ``args.streams`` feature requests under way, by turns; the
    objects ``small`` and ``shard.tar`` lie in container ``plain``."""
    cases: list[dict] = []
    spawn = multiprocessing.get_context("spawn")
    busy, stop = spawn.Event(), spawn.Event()
    bytes_in, answers = spawn.Value("q", 0), spawn.Value("q", 0)
    load = spawn.Process(
        target=feature_load,
        args=(place, headers, args.streams, busy, stop, bytes_in, answers),
    )
    load.start()
    try:
        open_loop(place, args.rate, 2)  # warm up
        for turn in range(args.turns):
            for with_load in (False, True):
                (busy.set if with_load else busy.clear)()
                before = answers.value, bytes_in.value
                time.sleep(args.settle)  # the engine fills up, or drains
                began = time.perf_counter()
                latencies = open_loop(place, args.rate, args.seconds)
                took = time.perf_counter() - began
                if not load.is_alive():
                    raise RuntimeError("the feature load has failed")
                cases.append(
                    {
                        "turn": turn,
                        "hapi": with_load,
                        "gets": len(latencies),
                        "p50_ms": percentile(latencies, 50),
                        "p95_ms": percentile(latencies, 95),
                        "p99_ms": percentile(latencies, 99),
                        "hapi_answers": answers.value - before[0],
                        "hapi_MB_per_s": (bytes_in.value - before[1])
                        / (took + args.settle)
                        / 1e6,
                    }
                )
                print(table(cases[-1:]), flush=True)
    finally:
        stop.set()
        load.join(180)
        if load.is_alive():
            load.kill()
    return cases


def measure(args: argparse.Namespace) -> tuple[list[dict], dict]:
    with (
        tempfile.TemporaryDirectory(prefix="hapi-bench-") as directory,
        EmbeddedCluster(
            ClusterConfig(
                dir=Path(directory, "cluster"),
                engine_threads=1,
                engine_conf=(("decode_threads", "1"), ("measure_memory", "false")),
            )
        ) as cluster,
    ):
        place = Place(cluster.storage_url, cluster.token)
        cases = alternate(place, prepare(place, args.model, args.images), args)
    return cases, summarise(cases)


def summarise(cases: list[dict]) -> dict:
    """Medians over the turns, and their ratios."""
    summary = {}
    for name, with_load in (("without", False), ("with", True)):
        for q in ("p50_ms", "p95_ms", "p99_ms"):
            values = [case[q] for case in cases if case["hapi"] is with_load]
            summary[f"{q}_{name}"] = statistics.median(values)
    for q in ("p50", "p99"):
        summary[f"plain_{q}_ratio"] = summary[f"{q}_ms_with"] / summary[f"{q}_ms_without"]
    summary["hapi_answers"] = sum(case["hapi_answers"] for case in cases if case["hapi"])
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--rate", type=float, default=25.0, help="plain GETs per second (25)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement (20)")
    parser.add_argument("--settle", type=float, default=2.0, help="seconds before each (2)")
    parser.add_argument("--turns", type=int, default=5, help="pairs of measurements (5)")
    parser.add_argument("--streams", type=int, default=4, help="feature requests at a time (4)")
    parser.add_argument("--images", type=int, default=32, help="photos in the shard (32)")
    args = parser.parse_args()
    if args.quick:
        args.seconds, args.turns = 5.0, 2
    cases, summary = measure(args)
    print(table(cases))
    for key, value in summary.items():
        print(f"{key}: {value:.3f}" if isinstance(value, float) else f"{key}: {value}")
    write_json(args.json, "plain_get", cases, summary)


if __name__ == "__main__":
    main()
