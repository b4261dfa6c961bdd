"""From a run's parts to its plan: what was asked for, or what profiling shows to be fastest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import nn

from hapi_compute.data.listing import Dataset
from hapi_compute.data.routing import Router
from hapi_compute.data.shards import Job
from hapi_compute.data.windows import Window
from hapi_compute.plan.candidates import RAW, Candidate, enumerate_candidates
from hapi_compute.plan.choice import Chooser
from hapi_compute.plan.costs import Setting
from hapi_compute.plan.demands import StorageProfile, demands, squeezed
from hapi_compute.store.errors import PushdownUnavailable
from hapi_compute.train.config import TrainConfig
from hapi_compute.train.pipeline import Pipeline
from hapi_compute.train.plan import Plan, asked_for, fewest_bytes, run_times
from hapi_compute.train.probing import Probed, probe
from hapi_compute.train.threads import cpus, decode_threads, torch_threads
from swift_hapi.graph.cuts import Cut
from swift_hapi.protocol.errors import BadCut

#: jobs that profiling may choose from; it stops long before
_JOBS = 256


@dataclass(frozen=True)
class Planned:
    """A plan with what may change it later (None where nothing is to be chosen)."""

    plan: Plan
    candidates: dict[str, Candidate]
    chooser: Chooser | None = None


def asked(config: TrainConfig, pipeline: Pipeline) -> Plan | None:
    """The plan that the options decide alone; None for ``split=auto``.

    :raises ValueError: no such cut
    :raises PushdownUnavailable: one is required, and the store has none
    """
    extractor, store = pipeline.extractor, pipeline.store
    cuts = extractor.cuts_for(pipeline.input_shape)
    info = store.info()
    # An operator may hide /info: then only trying tells.
    pushdown = not info or "swift_hapi" in info

    def resolve(name: str) -> Cut:
        try:
            return cuts[extractor.resolve(name).index]
        except BadCut as error:
            raise ValueError(f"split={name!r}: {error.detail}") from None

    plan = asked_for(config.split, resolve, pushdown, pipeline.candidate)
    if plan is not None:
        if config.require_pushdown and plan.cut is None:
            raise PushdownUnavailable(f"a push-down is required, but {plan.reason}")
        plan.sizes = {plan.candidate.name: float(plan.candidate.bytes)} if plan.cut else {}
    return plan


def settle(plan: Plan) -> Planned:
    """A plan that stays."""
    return Planned(plan, {plan.candidate.name: plan.candidate})


def guess(pipeline: Pipeline, dataset: Dataset) -> Planned:
    """A plan without measurements, where there is nothing left to train."""
    cuts = pipeline.extractor.cuts_for(pipeline.input_shape)
    raw = None if dataset.samples is None else dataset.bytes / dataset.samples
    return settle(fewest_bytes(cuts, raw, pipeline.candidate))


def measure(
    config: TrainConfig,
    pipeline: Pipeline,
    trainable: nn.Module,
    dataset: Dataset,
    windows: list[Window],
    jobs: list[Job],
    router: Router,
) -> Planned:
    """Profile with the run's first shards, and choose.

    :param jobs: this rank's, of ``windows``, from the front
    :raises PushdownUnavailable: one is required, and the store did not do it
    """
    cuts = pipeline.extractor.cuts_for(pipeline.input_shape)
    ranks = pipeline.share.ranks
    probed = probe(
        config, pipeline, trainable, jobs[:_JOBS], dataset.url.container, router, _deepest(cuts)
    )
    storage, bandwidth = shared(probed, ranks)
    pushdown = storage is not None
    if config.require_pushdown and not pushdown:
        raise PushdownUnavailable("a push-down is required, but the store did none when tried")
    candidates = enumerate_candidates(
        cuts,
        probed.compute.prefix,
        pipeline.candidate,
        raw=not config.require_pushdown,
        pushdown=pushdown,
    )
    wanted = demands(
        candidates,
        probed.compute,
        probed.objects,
        storage,
        {cut.name: pipeline.candidate(cut).bytes for cut in cuts},
        torch_threads(config, raw=False),
        torch_threads(config, raw=True),
    )
    setting = setting_of(config, dataset, windows, probed, pipeline.own_batch, ranks)
    setting = replace(setting, shared=pipeline.store.on_this_machine)
    chooser = Chooser(wanted, setting, bandwidth)
    by_name = {candidate.name: candidate for candidate in candidates}
    plan = Plan(by_name[chooser.current], "")
    plan.take(chooser)
    plan.first = {name: found.time for name, found in plan.estimates.items()}
    plan.sizes = {
        name: probed.objects.bytes if each.cut is None
        else each.bytes * squeezed(each, probed.compute)
        for name, each in by_name.items()
    }  # fmt: skip
    plan.run_times = run_times(wanted, setting, chooser.bandwidth)
    plan.profile = _profile(probed)
    others = {name: t for name, t in plan.first.items() if name != chooser.current}
    plan.runner_up = min(others, key=others.get, default=None)
    plan.reason = _why(plan)
    if setting.shared:
        plan.reason += "; the store is on this machine, and both tiers share its CPUs"
    return Planned(plan, by_name, chooser)


def _deepest(cuts: tuple[Cut, ...]) -> Cut:
    """The cut to probe at: the last that is smaller than all before it, for few bytes and much
    work; the freeze point where that is the input itself."""
    pareto = [cut for cut in cuts if cut.pareto and cut.index]
    return pareto[-1] if pareto else cuts[-1]


def shared(probed: Probed, ranks: int) -> tuple[StorageProfile | None, float]:
    """What is left of storage tier and network for one rank, where only one has looked at them:
    taken to be the n-th part for each of n, until the run itself tells."""
    storage = probed.storage
    if storage is not None:
        storage = replace(
            storage, service=storage.service * ranks, inference=storage.inference * ranks
        )
    return storage, probed.objects.bandwidth / ranks


def setting_of(
    config: TrainConfig,
    dataset: Dataset,
    windows: list[Window],
    probed: Probed,
    batch: int | None = None,
    ranks: int = 1,
) -> Setting:
    """:param batch: samples of an iteration that are one rank's"""
    samples = dataset.samples
    if samples is None:
        samples = round(dataset.bytes / probed.objects.bytes)
    # A rank reads the n-th part of every window's samples, and asks for no more than those.
    shard = samples / len(dataset.shards) * min(1.0, config.window / ranks)
    epochs = len({window.epoch for window in windows})
    return Setting(
        batch=batch or config.batch_size,
        shard=shard,
        in_flight=config.concurrency,
        window=math.ceil(config.window / ranks),
        iterations=math.ceil(samples / config.batch_size),
        epochs=epochs,
        cpus=cpus(),
        decoders=decode_threads(config),
    )


def _why(plan: Plan) -> str:
    best = plan.estimates[plan.candidate.name]
    text = f"{best.time * 1e3:.1f} ms per iteration predicted, {best.stages.bottleneck} decides"
    if plan.runner_up is not None:
        other = plan.estimates[plan.runner_up]
        text += (
            f"; next is {other.name}, {other.time * 1e3:.1f} ms, where {other.stages.bottleneck} "
            "decides"
        )
    if RAW in plan.estimates and RAW not in (plan.candidate.name, plan.runner_up):
        text += f"; raw {plan.estimates[RAW].time * 1e3:.1f} ms"
    return text


def _profile(probed: Probed) -> dict:
    compute, storage = probed.compute, probed.storage
    found = {
        "seconds": probed.seconds,
        "samples": probed.samples,
        "prefix_s": compute.prefix,
        "train_s": compute.train,
        "decode_s": compute.decode,
        "normalise_s": compute.normalise,
        "objects": dict(probed.objects.__dict__),
        "storage": None,
    }
    if storage is not None:
        found["storage"] = {**storage.__dict__, "ratio": storage.ratio(compute)}
    return found

