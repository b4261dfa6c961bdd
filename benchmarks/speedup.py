"""Seconds of an epoch: no push-down, offline-preprocessed tensors, simpler splits, ours.

All ways do the same work: the same samples in the same order, the same transforms, batches and
losses (which are compared). ``ours`` is a real run with ``split=auto``, profiling and all: its
first epoch is told apart, the median of the last epochs counts as its steady state. The others are
measured in steady state with their split fixed. ``best`` is the best of all fixed splits.

    python -m benchmarks.speedup --json out.json [--quick]
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import sys
import time

from benchmarks import rules
from benchmarks.common import table, write_json
from benchmarks.hosts import Hosts, run_in_two_hosts
from benchmarks.split_choice import _numbers, link_times
from benchmarks.steady import Rig, Silent, Steady, config_of, rig
from benchmarks.workload import network, upload_photos, upload_tensors
from hapi_compute.plan.candidates import RAW, Candidate
from hapi_compute.train.job import Job

URL = "swift://photos/train"
RTOL = 1e-4  #: of the losses of the first steps
STEPS = 4  #: whose losses are compared


def losses(the: Rig, state: dict, candidate: Candidate) -> list[float]:
    """Of the run's first steps, read as ``candidate`` has it."""
    the.parts.trainable.load_state_dict(copy.deepcopy(state))
    return the.first_losses(candidate, STEPS)


def interleaved(
    the: Rig, candidates: dict[str, Candidate], link: dict[str, float], chosen: str, turns: int
) -> dict[str, list[Steady]]:
    """Measurements by turns, the chosen one first; what the link alone makes hopeless is left out,
    and what is far off is measured once.

    :param link: seconds of an iteration that the candidate's bytes take
    """
    found: dict[str, list[Steady]] = {}
    for turn in range(turns):
        names = sorted(candidates, key=lambda name: (name != chosen, link[name]))
        for name in names if turn % 2 == 0 else reversed(names):
            best = min((s.time for each in found.values() for s in each), default=math.inf)
            far = name in found and found[name][0].time > 2 * best
            if far or (name != RAW and link[name] > 2 * best):
                continue
            found.setdefault(name, []).append(the.measure(candidates[name]))
    return found


def run_case(the: Rig, tensors: Rig, hosts: Hosts, ratio: float, photo_bytes: float, args) -> dict:
    state = copy.deepcopy(the.parts.trainable.state_dict())
    bandwidth = ratio * photo_bytes * the.samples_per_second
    hosts.set_rate(bandwidth)
    job = Job(the.parts, the.pipeline, Silent())
    report = job.train()
    epochs = [record.seconds for record in report.epochs]
    steady = statistics.median(epochs[-args.last :])
    plan = report.plan
    link = link_times(plan, the.config.batch_size, bandwidth if hosts.limited else math.inf)
    everything = interleaved(the, job.candidates, link, plan.settled, args.turns)
    times = link | {
        name: statistics.median(s.time for s in all_) for name, all_ in everything.items()
    }
    iterations = report.epochs[-1].steps
    by_rule = rules.choices(plan, the.parts.extractor.cuts[-1].name)
    offline = statistics.median(
        tensors.measure(Candidate(None)).time for _ in range(min(args.turns, 2))
    )
    chosen = plan.settled
    best = min(everything, key=times.get)
    serial = the.serial(job.candidates[chosen])
    ours = everything[chosen][-1]
    raw_losses = losses(the, state, Candidate(None))
    split_losses = losses(the, state, job.candidates[chosen])
    the.parts.trainable.load_state_dict(state)
    differ = max(abs(a - b) / abs(a) for a, b in zip(raw_losses, split_losses, strict=True))
    noise = [
        (max(s.time for s in all_) - min(s.time for s in all_)) / 2 / times[name]
        for name, all_ in everything.items()
        if len(all_) > 1
    ]
    return {
        "network": args.network,
        "batch": the.config.batch_size,
        "r": ratio,
        "bandwidth": bandwidth,
        "iterations_per_epoch": iterations,
        "chosen": chosen,
        "moves": [move.to_dict() for move in plan.history],
        "profile_s": plan.profile["seconds"],
        "epochs_s": {
            "raw": times[RAW] * iterations,
            "tensors": offline * iterations,
            "freeze": times[by_rule["freeze"]] * iterations,
            "fewest_bytes": times[by_rule["fewest_bytes"]] * iterations,
            "not_overlapped": serial * iterations,
            "best": times[best] * iterations,
            "ours": steady,
            "ours_first": epochs[0] + report.timings.get("profile", 0.0),
            "ours_fixed": times[chosen] * iterations,
        },
        "best": best,
        "vs_raw": times[RAW] * iterations / steady,
        "vs_tensors": offline * iterations / steady,
        "vs_best": times[best] * iterations / steady,
        "bound_s": ours.bound(bandwidth if hosts.limited else None) * iterations,
        "time_over_bound": ours.time / ours.bound(bandwidth if hosts.limited else None),
        "stages_s": ours.__dict__,
        "seconds_by_kind": report.seconds_by_kind,
        "largest_loss_difference": differ,
        "same_losses": differ <= RTOL,
        "noise": statistics.median(noise) if noise else math.nan,
    }


def inside(hosts: Hosts, argv: list[str]) -> int:
    args = parse(argv)
    store = hosts.client()
    photo_bytes = upload_photos(store, URL, args.photos, args.shard)
    print(f"{args.photos} photos of {photo_bytes / 1e3:.0f} KB, {args.shard} in a shard")
    cases: list[dict] = []
    started = time.monotonic()
    for name in args.networks.split(","):
        args.network = name
        tensor_url = f"swift://tensors/{network(name).side}"
        upload_tensors(store, tensor_url, args.photos, args.shard, network(name).transform)
        for batch in args.batches:
            config = config_of(network(name), URL, batch, split="auto", epochs=args.epochs)
            offline = config_of(network(name), tensor_url, batch, transform="none")
            with rig(config, store) as the, rig(offline, store) as tensors:
                hosts.set_rate(None)
                the.time_whole_network()
                for ratio in args.ratios:
                    case = run_case(the, tensors, hosts, ratio, photo_bytes, args)
                    cases.append(case)
                    print(table([_row(case)]), flush=True)
                    if time.monotonic() - started > args.budget:
                        print("the time is up; the cases so far count", flush=True)
                        return finish(args, cases)
    return finish(args, cases)


def _row(case: dict) -> dict:
    return {
        **{key: case[key] for key in ("network", "batch", "r")},
        **case["epochs_s"],
        "chosen": case["chosen"],
        "x raw": case["vs_raw"],
        "x tensors": case["vs_tensors"],
        "of bound": case["time_over_bound"],
        "noise": case["noise"],
    }


def geomean(values: list[float]) -> float:
    return math.exp(statistics.mean(map(math.log, values))) if values else math.nan


def summarise(cases: list[dict]) -> dict:
    slow = [case for case in cases if case["r"] <= 1]
    return {
        "cases": len(cases),
        "geomean_vs_raw": geomean([case["vs_raw"] for case in slow]),
        "max_vs_raw": max(case["vs_raw"] for case in cases),
        "worst_vs_raw": min(case["vs_raw"] for case in cases),
        "geomean_vs_tensors": geomean([case["vs_tensors"] for case in slow]),
        "least_vs_raw_at_0.1": min(
            (case["vs_raw"] for case in cases if case["r"] == 0.1), default=math.nan
        ),
        "slower_than_raw": [
            f"{case['network']} B={case['batch']} r={case['r']}: {1 / case['vs_raw'] - 1:.3f}"
            for case in cases
            if 1 / case["vs_raw"] - 1 > 0.03 + case["noise"]
        ],
        "time_over_bound_max": max(case["time_over_bound"] for case in cases),
        "time_over_bound_median": statistics.median(case["time_over_bound"] for case in cases),
        "same_losses": all(case["same_losses"] for case in cases),
        "noise_median": statistics.median(case["noise"] for case in cases),
    }


def finish(args: argparse.Namespace, cases: list[dict]) -> int:
    summary = summarise(cases)
    print(table([_row(case) for case in cases]))
    for key, value in summary.items():
        print(f"{key}: {value}")
    write_json(args.json, "speedup", cases, summary)
    return 0 if summary["same_losses"] else 1


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speedup", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--quick", action="store_true", help="one network, two bandwidths")
    parser.add_argument(
        "--networks", default="resnet18,mobilenet_v3_large,vit_tiny", metavar="A,B"
    )
    parser.add_argument("--batches", type=_numbers(int), default=[16], metavar="N,N")
    parser.add_argument("--ratios", type=_numbers(float), default=[0.1, 0.3, 1.0, 3.0])
    parser.add_argument("--photos", type=int, default=96)
    parser.add_argument("--shard", type=int, default=8, help="photos in a shard (8)")
    parser.add_argument("--epochs", type=int, default=12, help="of our runs (12)")
    parser.add_argument("--last", type=int, default=4, help="epochs that count as steady (4)")
    parser.add_argument("--turns", type=int, default=3, help="measurements of each (3)")
    parser.add_argument("--budget", type=float, default=720.0, help="seconds (720)")
    args = parser.parse_args(argv)
    if args.quick:
        args.networks, args.ratios, args.turns = "resnet18", [0.1, 1.0], 2
        args.epochs, args.last = 8, 3
    return args


if __name__ == "__main__":
    sys.exit(run_in_two_hosts("benchmarks.speedup", sys.argv[1:], inside))
