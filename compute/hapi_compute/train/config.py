"""Options of one training run. Pure stdlib, so that a command line can read it without torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace

from hapi_compute.store.names import SwiftUrl
from swift_hapi.protocol.errors import BadTransform
from swift_hapi.protocol.headers import ENCODINGS
from swift_hapi.protocol.transform import TransformSpec, parse_transform

OPTIMIZERS = ("adamw", "sgd")
SCHEDULES = ("constant", "cosine", "step")
AUTO, RAW = "auto", "raw"
#: fields that decide neither which samples are seen nor what is computed from them
_WITHOUT_INFLUENCE = frozenset(
    {
        "split", "prefetch", "concurrency", "micro_batch", "threads", "decode_threads", "out",
        "resume", "overwrite", "require_pushdown", "prefetch_bytes", "test", "test_transform",
        "checkpoint_seconds", "encoding",
    }
)  # fmt: skip


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a run.

    :param dataset: ``swift://container/prefix``
    :param model: as :func:`hapi_compute.models.load_model` takes it
    :param weights: as :func:`hapi_compute.models.load_model` takes it
    :param freeze_at: cut or module up to which the model is frozen
    :param split: a cut of the frozen part, ``raw``, or ``auto``
    :param transform: ``X-Hapi-Transform`` grammar; None: the model's own; ``none``: samples are
        tensors. Seed and epoch of random steps are filled in where they are missing
    :param test_transform: for validation and test; by default ``transform`` without its random
        steps
    :param test: dataset for the final accuracy
    :param val_split: fraction of the shards held out for validation after each epoch
    :param num_classes: where the dataset does not say
    :param window: shards shuffled together
    :param prefetch: shards read ahead of the window; None: as many as the window has
    :param prefetch_bytes: bound of the same in bytes
    :param concurrency: requests at once
    :param micro_batch: samples that the storage tier runs at once, at most
    :param encoding: content coding of features on the wire; zstd pays on slow networks
    :param threads: torch's CPU threads; None: one for each CPU that does not decode
    :param decode_threads: threads that decode on the compute tier; None: one for every second
        CPU. More threads than CPUs, both kinds together, are far slower than fewer
    :param out: directory for checkpoint and model; None writes nothing
    :param resume: go on from the checkpoint in ``out`` if there is one
    :param overwrite: begin anew in an ``out`` that holds a run already
    :param checkpoint_seconds: at most so much work of an epoch is lost; 0: after every step
    :param require_pushdown: fail where the store cannot run the head, instead of going on raw
    :raises ValueError: an option is out of range; the message names it and the range
    """

    dataset: str
    model: str
    weights: str
    freeze_at: str
    split: str = AUTO
    transform: str | None = None
    test_transform: str | None = None
    test: str | None = None
    val_split: float = 0.0
    num_classes: int | None = None
    epochs: int = 3
    batch_size: int = 64
    optimizer: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.9
    schedule: str = "constant"
    seed: int = 0
    window: int = 4
    prefetch: int | None = None
    prefetch_bytes: int = 256 << 20
    concurrency: int = 2
    micro_batch: int = 32
    encoding: str = "identity"
    threads: int | None = None
    decode_threads: int | None = None
    out: str | None = None
    resume: bool = False
    overwrite: bool = False
    checkpoint_seconds: float = 300.0
    require_pushdown: bool = False

    def __post_init__(self):
        SwiftUrl.parse(self.dataset)
        if self.test is not None:
            SwiftUrl.parse(self.test)
        for name in ("model", "weights", "freeze_at", "split"):
            if not getattr(self, name):
                raise ValueError(f"{name} is missing")
        for name, low, high in (
            ("num_classes", 1, 1_000_000),
            ("epochs", 1, 100_000),
            ("batch_size", 1, 100_000),
            ("seed", 0, (1 << 63) - 1),
            ("window", 1, 100_000),
            ("prefetch", 1, 100_000),
            ("prefetch_bytes", 1 << 20, 1 << 40),
            ("concurrency", 1, 256),
            ("micro_batch", 1, 4096),
            ("threads", 1, 4096),
            ("decode_threads", 1, 4096),
        ):
            self._check_range(name, low, high)
        self._check_range("val_split", 0, 0.9)
        self._check_range("checkpoint_seconds", 0, 1e9)
        self._check_range("lr", 0, 1000)
        self._check_range("weight_decay", 0, 1000)
        self._check_range("momentum", 0, 0.9999)
        for name, choices in (
            ("optimizer", OPTIMIZERS),
            ("schedule", SCHEDULES),
            ("encoding", ENCODINGS),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r}: want {' or '.join(choices)}")
        if self.resume and self.out is None:
            raise ValueError("resume needs out, the directory with the checkpoint")
        if self.require_pushdown and self.split == RAW:
            raise ValueError("require_pushdown contradicts split=raw")

    def _check_range(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        # Not "value < low or value > high": NaN must not slip through.
        if value is not None and not low <= value <= high:
            raise ValueError(f"{name}={value}: want {low} to {high}")

    @property
    def read_ahead(self) -> int:
        return self.window if self.prefetch is None else self.prefetch

    def with_transform(self, default: str | None) -> TrainConfig:
        """With the model's own transform where none was given."""
        return self if self.transform is not None else replace(self, transform=default)

    def identity(self) -> dict:
        """The options that decide the result; equal identities, equal losses."""
        values = {k: v for k, v in asdict(self).items() if k not in _WITHOUT_INFLUENCE}
        if self.schedule == "constant":
            del values["epochs"]  # More of them may be added later.
        return values

    def digest(self) -> str:
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def training_transform(text: str | None, seed: int, epoch: int) -> TransformSpec | None:
    """The transform of one epoch.

    :raises BadTransform: not in the grammar
    """
    if text is None:
        return None
    try:
        spec = parse_transform(text)
    except BadTransform:
        if "seed" in text or "epoch" in text:
            raise
        spec = None
    if spec is None:
        # Either random without a seed, or wrong in another way: then this says how.
        return parse_transform(f"{text}, seed={seed}, epoch={epoch}")
    return replace(spec, epoch=epoch) if spec.random else spec


def evaluation_transform(text: str | None, override: str | None = None) -> TransformSpec | None:
    """The transform for validation and test: nothing random.

    A random resized crop to N becomes resize to N * 8/7 and a centre crop to N, the usual pair
    (256 and 224).

    :raises BadTransform: ``override`` is random, or not in the grammar
    """
    if override is not None:
        spec = parse_transform(override)
        if spec.random:
            raise BadTransform(f"test transform {override!r} has random steps")
        return spec
    spec = training_transform(text, 0, 0)
    if spec is None or not spec.random:
        return spec
    resize, crop = spec.resize, spec.crop
    if spec.rrc is not None:
        crop = spec.rrc
        height, width = crop if isinstance(crop, tuple) else (crop, crop)
        resize = round(max(height, width) * 8 / 7)
    return replace(
        spec, rrc=None, scale=None, ratio=None, hflip=None, seed=None, epoch=None,
        resize=resize, crop=crop,
    )  # fmt: skip
