"""Simpler rules for where to split, fed with the very same measurements as the planner.

``freeze``: at the freeze point. ``fewest_bytes``: whatever sends the fewest bytes. ``no_overlap``:
the smallest sum of the stages' times. ``original``: the newest formula of the paper's code, one
stage for storage and network together, the client's computing beside it, unpacking not overlapped.
"""

from __future__ import annotations

from hapi_compute.train.plan import Plan


def original(row: dict, batches: int) -> float:
    """T = S + (max(S, C) + P)(N/B - 1) + P + C of one candidate.

    :param row: of :meth:`Plan.to_dict`'s candidates
    :param batches: N/B
    """
    serve = row["storage_s"] + row["network_s"]
    compute, unpack = row["compute_s"], row["receive_s"]
    return serve + (max(serve, compute) + unpack) * (batches - 1) + unpack + compute


def choices(plan: Plan, freeze: str, batches: int = 100) -> dict[str, str]:
    """Rule to the name of the candidate that it takes."""
    rows = {row["name"]: row for row in plan.to_dict()["candidates"]}

    def least(key) -> str:
        return min(rows, key=lambda name: key(rows[name]))

    return {
        "freeze": freeze,
        "fewest_bytes": least(lambda row: row["bytes_per_sample"]),
        "no_overlap": least(lambda row: row["no_overlap_s"]),
        "original": least(lambda row: original(row, batches)),
    }
