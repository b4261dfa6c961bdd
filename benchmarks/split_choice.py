"""Every way to split measured, then the planner's choice, and what simpler rules would choose.

A case is a network, a batch size and a bandwidth. The bandwidth is given as r = (images/s of raw
on the link) / (images/s of the whole network on the compute tier). Each candidate is measured in
steady state; those near the best are measured again, interleaved, and the median counts. A
candidate that needs several times the best time on the link alone (its bytes over the rate) is not
measured: that bound stands for its time. The planner's choice is where a short run with
``split=auto`` has arrived. Its regret is the time of its choice, as measured here, over the best
candidate's.

    python -m benchmarks.split_choice --json out.json [--quick]
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from dataclasses import dataclass, field

from benchmarks import rules
from benchmarks.common import percentile, table, write_json
from benchmarks.hosts import Hosts, run_in_two_hosts
from benchmarks.steady import Rig, Silent, Steady, config_of, rig
from benchmarks.workload import NETWORKS, network, upload_photos
from hapi_compute.plan.candidates import RAW, Candidate
from hapi_compute.train.job import Job
from hapi_compute.train.plan import Plan

URL = "swift://photos/train"
RATIOS = (0.1, 0.3, 1.0, 3.0, 10.0)
NEAR = 1.25  #: candidates within this factor of the best are measured again
HOPELESS = 2.5  #: times the best, on the link alone: not measured
LONGER = 1.0  #: seconds of each of those measurements, at least
BEST = 1.05  #: the bar


@dataclass
class Case:
    """One case: every candidate's measurements, in seconds per iteration."""

    network: str
    batch: int
    ratio: float
    bandwidth: float
    freeze: str
    seen: dict[str, list[Steady]] = field(default_factory=dict)
    bounds: dict[str, float] = field(default_factory=dict)
    predicted: dict[str, float] = field(default_factory=dict)
    chosen: str = ""
    first: str = ""
    moves: list[str] = field(default_factory=list)
    profile_seconds: float = 0.0
    by_rule: dict[str, str] = field(default_factory=dict)
    noise: float = 0.0
    link: dict[str, float] = field(default_factory=dict)

    @property
    def times(self) -> dict[str, float]:
        measured = {n: statistics.median(s.time for s in all_) for n, all_ in self.seen.items()}
        return self.bounds | measured

    @property
    def best(self) -> str:
        times = self.times
        return min(times, key=times.get)

    def regret(self, name: str) -> float:
        times = self.times
        return times[name] / times[self.best] - 1

    def to_dict(self) -> dict:
        times = self.times
        return {
            "network": self.network,
            "batch": self.batch,
            "r": self.ratio,
            "bandwidth": self.bandwidth,
            "freeze": self.freeze,
            "times_s": times,
            "not_measured_link_bounds_s": self.bounds,
            "measurements": {name: [s.time for s in found] for name, found in self.seen.items()},
            "stages_s": {name: found[-1].__dict__ for name, found in self.seen.items()},
            "predicted_s": self.predicted,
            "best": self.best,
            "chosen": self.chosen,
            "first_choice": self.first,
            "regret": self.regret(self.chosen),
            "moves": self.moves,
            "profile_s": self.profile_seconds,
            "rules": {
                rule: {"chosen": name, "regret": self.regret(name)}
                for rule, name in self.by_rule.items()
            },
            "noise": self.noise,
        }


def measure_all(the: Rig, candidates: dict[str, Candidate], case: Case, again: int) -> None:
    """Every candidate once, then the near ones ``again`` times by turns."""
    for name in sorted(candidates, key=case.predicted.__getitem__):
        bound = case.link[name]
        if name != RAW and case.seen and bound > HOPELESS * min(case.times.values()):
            case.bounds[name] = bound
        else:
            case.seen[name] = [the.measure(candidates[name])]
    for turn in range(again):
        times = case.times
        limit = NEAR * min(times.values())
        near = [name for name in case.seen if times[name] <= limit]
        for name in near if turn % 2 else reversed(near):
            case.seen[name].append(the.measure(candidates[name], seconds=LONGER))
    spreads = [
        (max(s.time for s in found) - min(s.time for s in found)) / 2 / case.times[name]
        for name, found in case.seen.items()
        if len(found) > 1
    ]
    case.noise = statistics.median(spreads) if spreads else math.nan


def link_times(plan: Plan, batch: int, bandwidth: float) -> dict[str, float]:
    """Seconds of an iteration that each candidate's bytes take."""
    return {name: batch * size / bandwidth for name, size in plan.sizes.items()}


def run_case(the: Rig, hosts: Hosts, ratio: float, photo_bytes: float, args) -> Case:
    """:param the: set up for ``split=auto``"""
    config = the.config
    speed = the.samples_per_second
    hosts.set_rate(ratio * photo_bytes * speed)
    case = Case(
        args.network, config.batch_size, ratio, ratio * photo_bytes * speed,
        the.parts.extractor.cuts[-1].name,
    )  # fmt: skip
    job = Job(the.parts, the.pipeline, Silent())
    report = job.train()
    plan = report.plan
    case.chosen = plan.settled
    case.first = min(plan.first, key=plan.first.get)
    case.predicted = {name: found.time for name, found in plan.estimates.items()}
    case.link = link_times(plan, config.batch_size, case.bandwidth if hosts.limited else math.inf)
    case.moves = [f"{move.step}:{move.split}" for move in plan.history]
    case.profile_seconds = plan.profile["seconds"]
    measure_all(the, job.candidates, case, args.again)
    case.by_rule = rules.choices(plan, case.freeze)
    return case


def inside(hosts: Hosts, argv: list[str]) -> int:
    args = parse(argv)
    store = hosts.client()
    photo_bytes = upload_photos(store, URL, args.photos, args.shard)
    print(f"{args.photos} photos of {photo_bytes / 1e3:.0f} KB (crops of scikit-learn's), "
          f"{args.shard} in a shard; a core for each tier")  # fmt: skip
    cases: list[Case] = []
    started = time.monotonic()
    for name in args.networks.split(","):
        args.network = name
        for batch in args.batches:
            epochs = max(2, math.ceil(args.iterations * batch / args.photos))
            config = config_of(network(name), URL, batch, split="auto", epochs=epochs)
            with rig(config, store) as the:
                hosts.set_rate(None)
                the.time_whole_network()
                for ratio in args.ratios:
                    case = run_case(the, hosts, ratio, photo_bytes, args)
                    cases.append(case)
                    print(table([_row(case)]), flush=True)
                    if time.monotonic() - started > args.budget:
                        print("the time is up; the cases so far count", flush=True)
                        return finish(args, cases)
    return finish(args, cases)


def _row(case: Case) -> dict:
    times = case.times
    return {
        "network": case.network,
        "B": case.batch,
        "r": case.ratio,
        "MB/s": case.bandwidth / 1e6,
        "best": case.best,
        "ms": times[case.best] * 1e3,
        "chosen": case.chosen,
        "regret": case.regret(case.chosen),
        "raw/best": times[RAW] / times[case.best],
        "noise": case.noise,
        **{rule: case.regret(name) for rule, name in case.by_rule.items()},
    }


def share(regrets: list[float]) -> float:
    return sum(regret <= BEST - 1 for regret in regrets) / len(regrets)


def summarise(cases: list[Case]) -> dict:
    """Regrets of the planner and the rules, over all cases and over those that are not trivial
    (the best is neither raw nor the freeze point)."""

    def of(regrets: list[float]) -> dict:
        if not regrets:
            return {"cases": 0}
        return {
            "cases": len(regrets),
            "within_5pct": share(regrets),
            "mean": statistics.mean(regrets),
            "p95": percentile(regrets, 95),
            "max": max(regrets),
        }

    hard = [case for case in cases if case.best not in (RAW, case.freeze)]
    return {
        "cases": len(cases),
        "within_5pct": share([case.regret(case.chosen) for case in cases]),
        "within_5pct_and_noise": sum(
            case.regret(case.chosen) <= BEST - 1 + case.noise for case in cases
        )
        / len(cases),
        "noise_median": statistics.median(case.noise for case in cases),
        "planner": of([case.regret(case.chosen) for case in cases]),
        "first_choice": of([case.regret(case.first) for case in cases]),
        "non_trivial": of([case.regret(case.chosen) for case in hard]),
        "rules": {
            rule: of([case.regret(case.by_rule[rule]) for case in cases])
            for rule in cases[0].by_rule
        },
        "rules_non_trivial": {
            rule: of([case.regret(case.by_rule[rule]) for case in hard])
            for rule in cases[0].by_rule
        },
        "misses": [
            f"{case.network} B={case.batch} r={case.ratio}: {case.chosen} "
            f"{case.times[case.chosen] * 1e3:.1f} ms, best {case.best} "
            f"{case.times[case.best] * 1e3:.1f} ms (noise {case.noise:.3f}; it thought "
            f"{case.predicted.get(case.chosen, math.nan) * 1e3:.1f} and "
            f"{case.predicted.get(case.best, math.nan) * 1e3:.1f})"
            for case in cases
            if case.regret(case.chosen) > BEST - 1
        ],
    }


def finish(args: argparse.Namespace, cases: list[Case]) -> int:
    summary = summarise(cases)
    print(table([_row(case) for case in cases]))
    for key, value in summary.items():
        print(f"{key}: {value}")
    write_json(args.json, "split_choice", [case.to_dict() for case in cases], summary)
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.split_choice", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--quick", action="store_true", help="one network, three bandwidths")
    parser.add_argument("--networks", default=",".join(n.name for n in NETWORKS), metavar="A,B")
    parser.add_argument("--batches", type=_numbers(int), default=[8, 24], metavar="N,N")
    parser.add_argument("--ratios", type=_numbers(float), default=list(RATIOS), metavar="R,R")
    parser.add_argument("--photos", type=int, default=192, help="in the dataset (192)")
    parser.add_argument("--shard", type=int, default=8, help="photos in a shard (8)")
    parser.add_argument("--iterations", type=int, default=40, help="of the planner's run (40)")
    parser.add_argument("--again", type=int, default=2, help="more measurements of near ones (2)")
    parser.add_argument("--budget", type=float, default=1700.0, help="seconds (1700)")
    args = parser.parse_args(argv)
    if args.quick:
        args.networks, args.batches, args.ratios = "resnet18", [8], [0.1, 1.0, 10.0]
        args.budget = 150.0
    return args


def _numbers(kind):
    return lambda text: [kind(each) for each in text.split(",")]


if __name__ == "__main__":
    sys.exit(run_in_two_hosts("benchmarks.split_choice", sys.argv[1:], inside))
