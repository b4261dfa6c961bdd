"""One network over many bandwidths, and one run during which the bandwidth falls and comes back.

The sweep: at each bandwidth, seconds of an iteration without push-down, at the freeze point, and
as the planner chooses. The drop: a run whose bandwidth is divided by ten for its middle third;
epoch by epoch against two runs with a fixed split (the best before and the best during the drop),
with the losses of all three compared.

    python -m benchmarks.bandwidth_sweep --json out.json [--quick]
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
from collections.abc import Callable
from dataclasses import replace

from benchmarks.common import table, write_json
from benchmarks.hosts import Hosts, run_in_two_hosts
from benchmarks.split_choice import _numbers
from benchmarks.steady import Rig, Silent, config_of, rig
from benchmarks.workload import network, upload_photos
from hapi_compute.plan.candidates import Candidate
from hapi_compute.train.job import Job
from hapi_compute.train.progress import Progress
from hapi_compute.train.report import Report

URL = "swift://photos/train"
RTOL = 1e-4


class AtEpoch(Progress):
    """Calls ``change(epoch)`` when an epoch begins."""

    def __init__(self, change: Callable[[int], None]):
        self._change = change

    def epoch_starts(self, epoch: int, epochs: int, steps: int | None, done: int) -> None:
        self._change(epoch)


def run_sweep(the: Rig, hosts: Hosts, photo_bytes: float, args) -> list[dict]:
    cases = []
    for ratio in args.ratios:
        bandwidth = ratio * photo_bytes * the.samples_per_second
        hosts.set_rate(bandwidth)
        job = Job(the.parts, the.pipeline, Silent())
        chosen = job.candidates[job.train().plan.settled]
        freeze = Candidate(the.parts.extractor.cuts_for(the.parts.input_shape)[-1])
        raw, at_freeze, ours = (
            the.measure(each) for each in (Candidate(None), freeze, chosen)
        )
        again = the.measure(chosen)
        cases.append(
            {
                "part": "sweep",
                "r": ratio,
                "bandwidth": bandwidth,
                "raw_s": raw.time,
                "freeze_s": at_freeze.time,
                "ours_s": (ours.time + again.time) / 2,
                "chosen": chosen.name,
                "raw_bytes": raw.bytes,
                "ours_bytes": ours.bytes,
                "noise": abs(ours.time - again.time) / (ours.time + again.time),
            }
        )
        print(table(cases[-1:]), flush=True)
    return cases


def run_drop(the: Rig, hosts: Hosts, photo_bytes: float, args) -> list[dict]:
    """Three runs of ``3 x args.third`` epochs; the bandwidth is low in the middle third."""
    high = args.high * photo_bytes * the.samples_per_second
    state = copy.deepcopy(the.parts.trainable.state_dict())

    def change(epoch: int) -> None:
        if epoch % args.third == 0:
            hosts.set_rate(high / 10 if epoch // args.third == 1 else high)

    def run(split: str) -> Report:
        change(0)
        the.parts.trainable.load_state_dict(copy.deepcopy(state))
        config = replace(the.config, split=split, epochs=3 * args.third)
        parts = replace(the.parts, config=config)
        return Job(parts, replace(the.pipeline, config=config), AtEpoch(change)).train()

    ours = run("auto")
    moves = [(move.step, move.split) for move in ours.plan.history]
    steps = ours.epochs[0].steps
    in_use = [_in_use(ours, epoch, steps) for epoch in range(3 * args.third)]
    # The fixed splits to compare with are where ours had arrived at the ends of the first two
    # thirds.
    before, during = in_use[args.third - 1], in_use[2 * args.third - 1]
    fixed = {split: run(split) for split in {before, during}}
    cases = []
    for epoch, record in enumerate(ours.epochs):
        cases.append(
            {
                "part": "drop",
                "epoch": epoch,
                "bandwidth": high / 10 if epoch // args.third == 1 else high,
                "ours_s": record.seconds,
                "before_s": fixed[before].epochs[epoch].seconds,
                "during_s": fixed[during].epochs[epoch].seconds,
                "ours": in_use[epoch],
                "before": before,
                "during": during,
                "moves": [f"{s}:{split}" for s, split in moves if s // steps == epoch],
                "loss_difference": max(
                    abs(a - b) / abs(b)
                    for run in fixed.values()
                    for a, b in zip(
                        ours.step_losses[epoch * steps : (epoch + 1) * steps],
                        run.step_losses[epoch * steps : (epoch + 1) * steps],
                        strict=True,
                    )
                ),
            }
        )
    print(table(cases), flush=True)
    return cases


def _in_use(report: Report, epoch: int, steps: int) -> str:
    """The split at the end of an epoch."""
    moves = [move for move in report.plan.history if move.step < (epoch + 1) * steps]
    if moves:
        return moves[-1].split
    first = report.plan.first
    return min(first, key=first.get)


def inside(hosts: Hosts, argv: list[str]) -> int:
    args = parse(argv)
    store = hosts.client()
    photo_bytes = upload_photos(store, URL, args.photos, args.shard)
    epochs = math.ceil(args.iterations * args.batch / args.photos)
    config = config_of(network(args.network), URL, args.batch, split="auto", epochs=epochs)
    with rig(config, store) as the:
        hosts.set_rate(None)
        the.time_whole_network()
        sweep = run_sweep(the, hosts, photo_bytes, args)
        drop = run_drop(the, hosts, photo_bytes, args)
    summary = summarise(sweep, drop, args.third)
    for key, value in summary.items():
        print(f"{key}: {value}")
    write_json(args.json, "bandwidth_sweep", sweep + drop, summary)
    return 0 if summary["same_losses"] else 1


def summarise(sweep: list[dict], drop: list[dict], third: int) -> dict:
    def total(kind: str, part: int | None = None) -> float:
        rows = drop if part is None else drop[part * third : (part + 1) * third]
        return sum(row[kind] for row in rows)

    return {
        "worst_vs_raw": min(case["raw_s"] / case["ours_s"] for case in sweep),
        "worst_vs_freeze": min(case["freeze_s"] / case["ours_s"] for case in sweep),
        "drop": {
            kind: {
                "total_s": total(f"{kind}_s"),
                "thirds_s": [total(f"{kind}_s", part) for part in range(3)],
            }
            for kind in ("ours", "before", "during")
        },
        "drop_splits": [drop[0]["before"], drop[0]["during"], drop[-1]["ours"]],
        "moves": [move for row in drop for move in row["moves"]],
        "largest_loss_difference": max(row["loss_difference"] for row in drop),
        "same_losses": max(row["loss_difference"] for row in drop) <= RTOL,
    }


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bandwidth_sweep", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--quick", action="store_true", help="two bandwidths, short epochs")
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--photos", type=int, default=192)
    parser.add_argument("--shard", type=int, default=8, help="photos in a shard (8)")
    parser.add_argument(
        "--ratios", type=_numbers(float), default=[0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0]
    )
    parser.add_argument("--iterations", type=int, default=50, help="of the planner's runs (50)")
    parser.add_argument("--high", type=float, default=1.0, help="r before and after the drop (1)")
    parser.add_argument("--third", type=int, default=6, help="epochs before, during, after (6)")
    args = parser.parse_args(argv)
    if args.quick:
        args.ratios, args.photos, args.third, args.batch = [0.3, 3.0], 96, 4, 8
    return args


if __name__ == "__main__":
    sys.exit(run_in_two_hosts("benchmarks.bandwidth_sweep", sys.argv[1:], inside))
