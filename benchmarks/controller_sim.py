"""The controller against two rivals, at sizes no desk holds.

    python -m benchmarks.controller_sim --json out.json [--quick]

Event-driven simulation: made-up tenants and devices, the real controller object. The rivals are
a server without adaptation (each request at the batch size it asks for) and the paper's linear
program. All three see the same arrivals.

Columns:

* ``jain_service``: Jain's index over tenants of the device time received by half of the makespan,
  relative to what max-min fair sharing of the same total would have given each (1: nobody got
  more at another's cost);
* ``jain_speed``: Jain's index over tenants of time alone on an empty device / time from arrival
  to end, 0 for what failed (1: all are slowed down equally);
* ``wait`` is from arrival to the first micro-batch, ``latency`` to the end of the last;
* ``useful``: the part of the devices' time until the end that was spent on samples rather than on
  overheads, loading or nothing;
* ``peak``: the most memory granted, as part of the budget;
* ``decision_us``: real time per call of the controller.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import sys
import time
from collections import defaultdict
from statistics import fmean

from benchmarks.common import percentile, table, write_json
from benchmarks.policies.base import Policy, Run, SharedDevice
from benchmarks.policies.ours import Ours
from benchmarks.policies.rivals import LinearProgram, Unadapted, linear_program
from benchmarks.policies.trace import GB, MODELS, Request, equal, tenants
from swift_hapi.engine.control.plan import LaneView, solve
from swift_hapi.engine.control.types import LaneKey
from swift_hapi.engine.control.waterfill import split

POLICIES = (Ours, Unadapted, LinearProgram)
COLUMNS = (
    "case", "policy", "jain_service", "jain_speed", "makespan_s", "wait_mean_s", "wait_p95_s",
    "latency_mean_s", "failed", "useful", "peak", "batches", "decision_us",
)


def simulate(policy: Policy, requests: list[Request], devices: int, budget: int) -> dict:
    """Run a trace to its end; the table's row (without names)."""
    pools = [SharedDevice() for _ in range(devices)]
    numbers = itertools.count()
    queue: list[tuple[float, int, object]] = []
    first: dict[str, float] = {}
    end: dict[str, float] = {}
    spans: list[tuple[float, float, Run]] = []
    peak = batches = 0
    wake = [None] * devices

    def post(at: float, what: object) -> None:
        heapq.heappush(queue, (at, next(numbers), what))

    for request in requests:
        post(request.at, request)
    now = 0.0
    while True:
        upcoming = [(at, i) for i, pool in enumerate(pools) if (at := pool.next_end()) is not None]
        ending = min(upcoming, default=None)
        if ending is not None and (not queue or ending[0] <= queue[0][0]):
            now = ending[0]
            run = pools[ending[1]].pop(now)
            spans.append((run.started + run.load, now, run))
            for request in policy.done(run, now):
                end[request] = now
        elif queue:
            now = queue[0][0]
            while queue and queue[0][0] <= now:  # all that come at once are seen together
                _, _, what = heapq.heappop(queue)
                if isinstance(what, Request):
                    again = policy.arrive(what, now)
                    if again is not None:
                        post(again, what)
                elif isinstance(what, Run):
                    pools[what.device].add(what, now)
                else:
                    wake[what] = None
        else:
            break
        for device, pool in enumerate(pools):
            runs, until = policy.start(device, now)
            for run in runs:
                batches += 1
                for request in run.parts:
                    first.setdefault(request, now)
                if run.load:
                    post(now + run.load, run)
                else:
                    pool.add(run, now)
            peak = max(peak, policy.used(device))
            if until is not None and (wake[device] is None or until < wake[device]):
                wake[device] = until
                post(until, device)
    return {
        **_measure(requests, devices, now, first, end, spans),
        "peak": peak / budget,
        "batches": batches,
    }


def _measure(requests, devices, makespan, first, end, spans) -> dict:
    speeds = defaultdict(list)
    for request in requests:
        took = end.get(request.id)
        speeds[request.tenant].append(request.alone / (took - request.at) if took else 0.0)
    service = fair_service(requests, spans, makespan / 2)
    waits = [first[r.id] - r.at for r in requests if r.id in first]
    useful = sum(r.seconds for r in requests if r.id in end)
    return {
        "tenants": len(speeds),
        "requests": len(requests),
        "devices": devices,
        "jain_service": jain(service),
        "jain_speed": jain([fmean(values) for values in speeds.values()]),
        "makespan_s": makespan,
        "wait_mean_s": fmean(waits),
        "wait_p95_s": percentile(waits, 95),
        "latency_mean_s": fmean([end[r.id] - r.at for r in requests if r.id in end]),
        "failed": len(requests) - len(end),
        "useful": useful / (devices * makespan),
    }


def fair_service(requests: list[Request], spans: list, until: float) -> list[float]:
    """Per tenant, useful device seconds received relative to the max-min fair share."""
    by_id = {request.id: request for request in requests}
    demand: dict[str, float] = defaultdict(float)
    for request in requests:
        if request.at < until:
            demand[request.tenant] += request.seconds
    got = dict.fromkeys(demand, 0.0)
    for began, ended, run in spans:
        part = min(1.0, max(0.0, until - began) / (ended - began))
        for name, count in run.parts.items():
            if part:
                request = by_id[name]
                got[request.tenant] += part * count * request.model.sample_seconds
    shares = split(sum(got.values()), list(demand.values()))
    return [got[t] / share for t, share in zip(demand, shares, strict=True) if share]


def jain(values: list[float]) -> float:
    """Jain's fairness index: 1 for equal values, 1/n when one has all."""
    square = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * square) if square else 0.0


def papers_example() -> dict:
    """Four equal requests for 1000 samples where 3057 fit: batch sizes by both rules."""
    cost, room = MODELS[2].sample_bytes, 3057
    views = [
        LaneView(LaneKey(f"m{i}", "x", ()), 0, 0, cost, 25, 1000, {f"t{i}": 1000})
        for i in range(4)
    ]
    plan = solve(room * cost, views)
    return {
        "ours": sorted(plan.targets.values(), reverse=True),
        "lp": sorted(linear_program([cost] * 4, [25] * 4, [1000] * 4, room * cost), reverse=True),
    }


def cases(quick: bool):
    """(name, requests, devices, budget) of each trace; Poisson at 0.8 of what they can do."""
    yield "4 equal, burst", equal(4, 1000, MODELS[4]), 1, 80 * GB
    yield "10, burst", tenants(10, 4, seed=1), 1, 80 * GB
    yield "100, burst", tenants(100, 4, seed=2), 1, 80 * GB
    yield "100, burst, 16 GB", tenants(100, 4, seed=2), 1, 16 * GB
    yield "100, Poisson", at_load(100, 4, 3, 1), 1, 80 * GB
    each = 1 if quick else 8
    yield "1000, burst", tenants(1000, each, seed=4), 8, 80 * GB
    yield "1000, Poisson", at_load(1000, each, 5, 8), 8, 80 * GB


def at_load(count: int, each: int, seed: int, devices: int, load: float = 0.8) -> list[Request]:
    """Poisson arrivals that keep ``load`` of the devices' time useful."""
    work = sum(r.seconds for r in tenants(count, each, seed=seed, rate=1.0))
    return tenants(count, each, seed=seed, rate=load * devices * count / work)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="PATH", help="write the results there")
    parser.add_argument("--quick", action="store_true", help="one request per tenant")
    options = parser.parse_args(argv)
    rows = []
    for name, requests, devices, budget in cases(options.quick):
        for kind in POLICIES:
            began = time.perf_counter()
            policy = kind(devices, budget)
            row = {"case": name, "policy": kind.name}
            row |= simulate(policy, requests, devices, budget)
            if isinstance(policy, Ours):
                row["decision_us"] = policy.thinking / policy.decisions * 1e6
                row["decisions"] = policy.decisions
            rows.append(row)
            spent = time.perf_counter() - began
            print(f"{name}, {kind.name}: simulated in {spent:.1f} s", file=sys.stderr)
    example = papers_example()
    print(table([{name: row.get(name, "") for name in COLUMNS} for row in rows]))
    print(f"four equal requests, room for 3057 samples: {example}")
    write_json(options.json, "controller_sim", rows, _summary(rows, example))
    return 0


def _summary(rows: list[dict], example: dict) -> dict:
    by = {(row["case"], row["policy"]): row for row in rows}
    names = list(dict.fromkeys(row["case"] for row in rows))
    ours = [by[name, "ours"] for name in names]

    def ratio(rival: str, key: str) -> dict:
        return {name: by[name, "ours"][key] / by[name, rival][key] for name in names}

    def least(key: str) -> dict:
        return {kind.name: min(by[n, kind.name][key] for n in names) for kind in POLICIES}

    return {
        "four_equal_requests": example,
        "failed": {
            kind.name: sum(by[name, kind.name]["failed"] for name in names) for kind in POLICIES
        },
        "least_jain_service": least("jain_service"),
        "least_jain_speed": least("jain_speed"),
        "makespan_vs_none": ratio("none", "makespan_s"),
        "makespan_vs_lp": ratio("lp", "makespan_s"),
        "peak": max(row["peak"] for row in ours),
        "decision_us": max(row["decision_us"] for row in ours),
    }


if __name__ == "__main__":
    sys.exit(main())
