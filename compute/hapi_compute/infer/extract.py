"""``hapi extract``: features of a whole dataset in one file."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.inspection import tensor_shape
from hapi_compute.data.listing import pin
from hapi_compute.data.names import read_names
from hapi_compute.infer.config import ScanConfig, check_out
from hapi_compute.infer.features_file import FeaturesFile, finished
from hapi_compute.infer.scan import Scan, decoding
from hapi_compute.models import load_model
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.names import SwiftUrl
from swift_hapi.graph.allocator import keep_freed_memory
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.errors import BadCut, BadTransform
from swift_hapi.protocol.headers import TRANSFORM
from swift_hapi.protocol.transform import TransformSpec, parse_transform

NO_TRANSFORM = "none"


@dataclass(frozen=True)
class ExtractConfig:
    """
    :param cut: name or index of a cut, or a module: then the last cut within
    :param out: ``.npy`` (keys and labels go to a ``.json`` beside it) or ``.safetensors``
    :param transform: grammar of ``X-Hapi-Transform``; None: the model's own; ``none``: samples
        are tensors
    :param restart: begin anew, whatever an earlier run has left
    :raises ValueError: an option will not do
    """

    scan: ScanConfig
    model: str
    cut: str
    out: str
    weights: str = "default"
    transform: str | None = None
    restart: bool = False

    def __post_init__(self):
        check_out(self.out)
        for name in ("model", "cut", "weights"):
            if not getattr(self, name):
                raise ValueError(f"{name} is missing")


@dataclass(frozen=True)
class ExtractReport:
    """``resumed`` samples were there from an earlier run."""

    out: str
    model: str
    cut: str
    shape: tuple[int, ...]
    samples: int
    shards: int
    resumed: int
    bytes_received: int
    seconds: float
    fallbacks: int = 0
    unlabelled: int = 0

    def to_dict(self) -> dict:
        return {**self.__dict__, "shape": list(self.shape)}


#: (shards done, shards in all)
Progress = Callable[[int, int], None]


def extract(
    config: ExtractConfig,
    store: SwiftClient,
    progress: Progress = lambda done, total: None,
    note: Callable[[str], None] = lambda text: None,
) -> ExtractReport:
    """Write the features of every sample, in listing order.

    :raises ValueError: an option does not suit model or data
    :raises HapiError: what store or data raised
    """
    keep_freed_memory()
    started, counted = time.perf_counter(), store.counters.snapshot()
    scan = config.scan
    dataset = pin(store, SwiftUrl.parse(scan.dataset), labels=scan.labels, unlabelled=True)
    loaded = load_model(config.model, config.weights)
    if loaded.input_dtype != "float32":
        raise ValueError(f"model={config.model!r}: takes {loaded.input_dtype}, not images")
    spec = _transform(config, loaded.transform)
    shape = tensor_shape(store, dataset) if spec is None else (3, *spec.size)
    try:
        extractor = make_extractor(loaded.module, config.cut, shape)
    except BadCut as error:
        raise ValueError(f"cut={config.cut!r}: {error.detail}") from None
    cut = extractor.cuts[-1]
    about = {
        "dataset": dataset.identity,
        "labels_from": scan.labels,
        "classes": list(dataset.classes),
        "model": config.model,
        "weights": config.weights,
        "extractor": extractor.digest,
        "cut": cut.name,
        "transform": None if spec is None else str(spec),
        "micro_batch": scan.micro_batch,
    }
    there = None if config.restart else finished(Path(config.out), about)
    if there is not None:
        note(f"{config.out} is complete already")
        return ExtractReport(
            out=config.out,
            model=config.model,
            cut=cut.name,
            shape=(there, *cut.shape),
            samples=there,
            shards=len(dataset.shards),
            resumed=there,
            bytes_received=(store.counters.snapshot() - counted).bytes_received,
            seconds=time.perf_counter() - started,
        )
    with decoding(scan) as pool:
        reader = Scan(scan, store, dataset, extractor, cut, shape, spec, None, pool)
        with FeaturesFile(Path(config.out), about, cut.shape, restart=config.restart) as out:
            resumed, total = len(out.keys), len(dataset.shards)
            done = len(out.shards)
            if out.shards != [shard.name for shard in dataset.shards[:done]]:
                raise DatasetError(f"{config.out}.journal: lists other shards; give --restart")
            if resumed:
                note(f"{resumed} samples of {done} shards are there already")
            progress(done, total)
            for shard, samples in reader.shards(dataset.shards[done:]):
                out.append(shard.name, reader.rows(samples), samples.keys, samples.labels)
                done += 1
                progress(done, total)
            out.finish(read_names(store, dataset))
    return ExtractReport(
        out=config.out,
        model=config.model,
        cut=cut.name,
        shape=(len(out.keys), *cut.shape),
        samples=len(out.keys),
        shards=total,
        resumed=resumed,
        fallbacks=reader.fallbacks,
        unlabelled=sum(label < 0 for label in out.labels),
        bytes_received=(store.counters.snapshot() - counted).bytes_received,
        seconds=time.perf_counter() - started,
    )


def _transform(config: ExtractConfig, default: str | None) -> TransformSpec | None:
    text = config.transform or default
    if text == NO_TRANSFORM:
        return None
    if text is None:
        raise ValueError(f"transform: {config.model} has no default; give one")
    try:
        return parse_transform(text)
    except BadTransform as error:
        why = error.detail.removeprefix(f"{TRANSFORM}: ")
        raise ValueError(f"transform={text!r}: {why}") from None
