"""One to eight trainers at a time: ours against everything in the store.

``ours``: all trainers run on the compute tier with ``split=auto``; the load of the others moves
their plans. ``all_in_store``: all trainers run beside the store, on the storage tier's core, and
read objects without a network between. ``raw``: all on the compute tier without push-down. Every
trainer is a process of its own; they begin together. What counts is a job's mean seconds.

    python -m benchmarks.multi_tenant --json out.json [--quick]
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import subprocess
import sys
import time

from benchmarks.common import table, write_json
from benchmarks.hosts import Hosts, in_storage_tier, run_in_two_hosts
from benchmarks.split_choice import _numbers
from benchmarks.steady import Silent, config_of, rig
from benchmarks.workload import network, upload_photos
from hapi_compute.train.job import Job

URL = "swift://photos/train"
MODES = ("ours", "raw", "all_in_store")


def tenant(hosts: Hosts, args, number: int, barrier, answers) -> None:
    """One trainer, a process: gets ready, waits for the others, trains, tells how it went."""
    config = config_of(
        network(args.network), URL, args.batch, split=args.split, epochs=args.epochs, seed=number
    )
    with rig(config, hosts.client()) as the:
        barrier.wait(600)
        started = time.perf_counter()
        report = Job(the.parts, the.pipeline, Silent()).train()
        answers.put(
            {
                "seconds": time.perf_counter() - started,
                "epochs": [record.seconds for record in report.epochs],
                "split": report.plan.split,
                "moves": len(report.plan.history),
            }
        )


def host(hosts: Hosts, args) -> int:
    """``args.host`` trainers at a time on the tier that this process runs on."""
    context = multiprocessing.get_context("forkserver")
    # Importing torch takes longer than all the rest; nothing of it may have run before a fork.
    context.set_forkserver_preload(["benchmarks.steady", "torchvision"])
    barrier, answers = context.Barrier(args.host), context.Queue()
    trainers = [
        context.Process(target=tenant, args=(hosts, args, number, barrier, answers))
        for number in range(args.host)
    ]
    for trainer in trainers:
        trainer.start()
    told = [answers.get(timeout=1200) for _ in trainers]
    for trainer in trainers:
        trainer.join()
    print(json.dumps(told))
    return 0


def together(hosts: Hosts, count: int, mode: str, args) -> list[dict]:
    """``count`` trainers; what each told."""
    prefix = in_storage_tier(hosts) if mode == "all_in_store" else []
    command = [*prefix, sys.executable, "-m", "benchmarks.multi_tenant", "--host", str(count)]
    for option in ("network", "batch", "epochs"):
        command += [f"--{option}", str(getattr(args, option))]
    command += ["--split", "auto" if mode == "ours" else "raw"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{count} trainers ({mode}) ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def inside(hosts: Hosts, argv: list[str]) -> int:
    args = parse(argv)
    if args.host:
        return host(hosts, args)
    store = hosts.client()
    photo_bytes = upload_photos(store, URL, args.photos, args.shard)
    config = config_of(network(args.network), URL, args.batch)
    with rig(config, store) as the:
        the.time_whole_network()
        speed = the.samples_per_second
    hosts.set_rate(args.ratio * photo_bytes * speed)
    cases = []
    for count in args.tenants:
        for mode in MODES:
            if mode == "raw" and count > 4:
                continue  # Many times slower, and nothing new.
            told = together(hosts, count, mode, args)
            cases.append(
                {
                    "tenants": count,
                    "mode": mode,
                    "r": args.ratio,
                    "mean_s": statistics.mean(each["seconds"] for each in told),
                    "max_s": max(each["seconds"] for each in told),
                    "steady_epoch_s": statistics.mean(
                        statistics.median(each["epochs"][args.epochs // 2 :]) for each in told
                    ),
                    "splits": sorted({each["split"] for each in told}),
                }
            )
            print(table(cases[-1:]), flush=True)
    summary = summarise(cases)
    print(table(cases))
    for key, value in summary.items():
        print(f"{key}: {value}")
    write_json(args.json, "multi_tenant", cases, summary)
    return 0


def summarise(cases: list[dict]) -> dict:
    def over_ours(mode: str, key: str) -> dict[int, float]:
        by = {(case["tenants"], case["mode"]): case[key] for case in cases}
        return {
            count: seconds / by[count, "ours"]
            for (count, found), seconds in by.items()
            if found == mode
        }

    return {
        f"{mode}_over_ours{suffix}": over_ours(mode, key)
        for mode in MODES[1:]
        for key, suffix in (("mean_s", ""), ("steady_epoch_s", "_steady"))
    } | {"fairness_max_over_mean": _fairness(cases)}


def _fairness(cases: list[dict]) -> float:
    return max(
        (case["max_s"] / case["mean_s"] for case in cases if case["mode"] == "ours"),
        default=math.nan,
    )


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.multi_tenant", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--quick", action="store_true", help="one and two trainers")
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--photos", type=int, default=64)
    parser.add_argument("--shard", type=int, default=8, help="photos in a shard (8)")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--ratio", type=float, default=1.0, help="r of one trainer (1)")
    parser.add_argument("--tenants", type=_numbers(int), default=[1, 2, 4, 8], metavar="N,N")
    parser.add_argument("--host", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--split", default="auto", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.quick:
        args.tenants, args.photos, args.epochs = [1, 2], 64, 4
    return args


if __name__ == "__main__":
    sys.exit(run_in_two_hosts("benchmarks.multi_tenant", sys.argv[1:], inside))
