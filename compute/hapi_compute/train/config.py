"""Options of one training run. Pure stdlib, so that a command line can read it without torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace

from hapi_compute.store.names import SwiftUrl
from swift_hapi.protocol.errors import BadTransform
from swift_hapi.protocol.headers import ENCODINGS, FEATURE_DTYPES
from swift_hapi.protocol.transform import RANDOM_STEPS, TransformSpec, parse_transform

OPTIMIZERS = ("adamw", "sgd")
SCHEDULES = ("constant", "cosine", "step")
DEVICES = ("auto", "cpu", "cuda")
KEEP = ("best", "last")
PRECISIONS = ("float32", "bfloat16", "float16", "auto")
BALANCED = "balanced"
AUTO, RAW = "auto", "raw"
#: fields that decide neither which samples are seen nor what is computed from them
_WITHOUT_INFLUENCE = frozenset(
    {
        "split", "prefetch", "concurrency", "micro_batch", "threads", "decode_threads", "out",
        "resume", "overwrite", "require_pushdown", "prefetch_bytes", "test", "test_transform",
        "checkpoint_seconds", "encoding", "device", "patience", "keep", "tensorboard",
    }
)  # fmt: skip


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a run.

    :param dataset: ``swift://container/prefix``
    :param model: as :func:`hapi_compute.models.load_model` takes it
    :param weights: as :func:`hapi_compute.models.load_model` takes it
    :param freeze_at: cut or module up to which the model is frozen
    :param split: a cut of the frozen part or a module in it, ``raw``, or ``auto``
    :param transform: ``X-Hapi-Transform`` grammar; None: the model's own; ``none``: samples are
        tensors. Seed and epoch of random steps are filled in where they are missing
    :param augment: random steps that are added to ``transform``, in its grammar, for training
        alone: ``hflip=0.5, brightness=0.4``
    :param test_transform: for validation and test; by default ``transform`` without its random
        steps
    :param test: dataset for the final accuracy
    :param val_split: fraction of the shards held out for validation after each epoch
    :param labels: where labels come from, as :func:`hapi_compute.data.listing.pin` takes it
    :param num_classes: where the dataset does not say
    :param batch_size: samples of a step, over all ranks
    :param drop_last: leave the last batch of an epoch out if it is not full
    :param accumulate: batches whose gradients make one step of the optimiser
    :param warmup: steps in which the learning rate rises from nothing to its full height
    :param label_smoothing: part of the target that is spread over all classes
    :param class_weights: ``balanced`` (by the manifest's counts) or a number for each class,
        ``1,2.5,1``; None: all the same
    :param task: ``path/to/file.py:factory`` of a :class:`~hapi_compute.train.hook.TrainingTask`
    :param window: shards shuffled together
    :param prefetch: shards read ahead of the window; None: as many as the window has
    :param prefetch_bytes: bound of the same in bytes
    :param concurrency: requests at once
    :param micro_batch: samples that the storage tier runs at once, at most
    :param dtype: of features on the wire; float16 and int8 round them, and so the losses
    :param encoding: content coding of features on the wire; zstd pays on slow networks
    :param threads: torch's CPU threads; None: one for each CPU that does not decode, for every
        second one where the store is on this machine
    :param decode_threads: threads that decode on the compute tier; None: one for every second
        CPU. More threads than CPUs, both kinds together, are far slower than fewer
    :param out: directory for checkpoint and model; None writes nothing
    :param resume: go on from the checkpoint in ``out`` if there is one
    :param overwrite: begin anew in an ``out`` that holds a run already
    :param checkpoint_seconds: at most so much work of an epoch is lost; 0: after every step
    :param patience: stop after so many epochs without a better validation; None: never
    :param keep: whether the best or the last epoch's weights become the model; None: the best
        where there is a validation
    :param tensorboard: write events for TensorBoard below ``out``
    :param device: ``auto`` takes a GPU where there is one
    :param precision: of the layers that are trained; ``auto``: bfloat16 on GPUs that have it,
        float32 elsewhere. The frozen part is float32 everywhere
    :param require_pushdown: fail where the store cannot run the head, instead of going on raw
    :raises ValueError: an option is out of range; the message names it and the range
    """

    dataset: str
    model: str
    weights: str
    freeze_at: str
    split: str = AUTO
    transform: str | None = None
    augment: str | None = None
    test_transform: str | None = None
    test: str | None = None
    val_split: float = 0.0
    num_classes: int | None = None
    labels: str | None = None
    epochs: int = 3
    batch_size: int = 64
    drop_last: bool = False
    accumulate: int = 1
    optimizer: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.9
    schedule: str = "constant"
    warmup: int = 0
    label_smoothing: float = 0.0
    class_weights: str | None = None
    task: str | None = None
    seed: int = 0
    window: int = 4
    prefetch: int | None = None
    prefetch_bytes: int = 256 << 20
    concurrency: int = 2
    micro_batch: int = 32
    dtype: str = "float32"
    encoding: str = "identity"
    threads: int | None = None
    decode_threads: int | None = None
    out: str | None = None
    resume: bool = False
    overwrite: bool = False
    checkpoint_seconds: float = 300.0
    patience: int | None = None
    keep: str | None = None
    tensorboard: bool = False
    device: str = "auto"
    precision: str = "float32"
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
            ("accumulate", 1, 100_000),
            ("warmup", 0, 1_000_000_000),
            ("patience", 1, 100_000),
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
        self._check_range("label_smoothing", 0, 0.9999)
        for name, choices in (
            ("optimizer", OPTIMIZERS),
            ("schedule", SCHEDULES),
            ("dtype", FEATURE_DTYPES),
            ("encoding", ENCODINGS),
            ("device", DEVICES),
            ("precision", PRECISIONS),
            ("keep", KEEP),
        ):
            if name == "keep" and self.keep is None:
                continue
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r}: want {' or '.join(choices)}")
        if self.resume and self.out is None:
            raise ValueError("resume needs out, the directory with the checkpoint")
        if self.tensorboard and self.out is None:
            raise ValueError("tensorboard needs out, the directory to write to")
        if self.patience is not None and not self.val_split:
            raise ValueError("patience needs val_split: without validation there is no telling")
        if self.keep == "best" and not self.val_split:
            raise ValueError("keep=best needs val_split: without validation there is no telling")
        self.given_weights()
        if self.require_pushdown and self.split == RAW:
            raise ValueError("require_pushdown contradicts split=raw")

    def _check_range(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        # Not "value < low or value > high": NaN must not slip through.
        if value is not None and not low <= value <= high:
            raise ValueError(f"{name}={value}: want {low} to {high}")

    def given_weights(self) -> tuple[float, ...] | None:
        """A weight for each class, where ``class_weights`` is a list of them.

        :raises ValueError: it is neither that nor ``balanced``
        """
        if self.class_weights in (None, BALANCED):
            return None
        try:
            weights = tuple(float(text) for text in self.class_weights.split(","))
        except ValueError:
            weights = ()
        if not weights or not all(0 <= weight <= 1e6 for weight in weights) or not any(weights):
            raise ValueError(
                f"class_weights={self.class_weights!r}: want {BALANCED!r} or numbers from 0 to "
                "1000000 with commas between them, not all 0"
            )
        return weights

    @property
    def keeps_best(self) -> bool:
        """Whether the weights of the best epoch become the model."""
        return self.keep == "best" or (self.keep is None and self.val_split > 0)

    @property
    def read_ahead(self) -> int:
        return self.window if self.prefetch is None else self.prefetch

    def with_transform(self, default: str | None) -> TrainConfig:
        """With the model's own transform where none was given."""
        return self if self.transform is not None else replace(self, transform=default)

    def identity(self) -> dict:
        """The options that decide the result; equal identities, equal losses."""
        values = {k: v for k, v in asdict(self).items() if k not in _WITHOUT_INFLUENCE}
        if self.dtype == "float32":
            del values["dtype"]
        if self.augment is None:
            del values["augment"]  # What there was is part of the transform once a run begins.
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
    nothing = dict.fromkeys((*RANDOM_STEPS, "scale", "ratio", "seed", "epoch"))
    return replace(spec, **nothing, resize=resize, crop=crop)
