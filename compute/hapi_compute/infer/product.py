"""The product of ``hapi train``, ready to run: whole network, classes, preprocessing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch
import torch
from torch import nn

from hapi_compute.data.errors import DatasetError
from hapi_compute.models import load_model, user
from hapi_compute.train import hook
from hapi_compute.train.hook import TrainingTask
from hapi_compute.train.product import DESCRIPTION_NAME, HEAD, WEIGHTS_NAME
from hapi_compute.train.split_names import find_cut
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.interpreter import Tail
from swift_hapi.graph.split import build_transfer, make_extractor
from swift_hapi.protocol.errors import BadCut
from swift_hapi.protocol.transform import TransformSpec, parse_transform


@dataclass(frozen=True)
class Product:
    """
    :param frozen: the network up to its freeze point, which training has not changed: its digest
        is that of the run, so the store may have it already
    :param whole: all of it, with the cuts of ``frozen`` by the same names; None where a task has
        made ``head``, which goes on from the freeze point
    :param module: the network as it is built, for names of its modules
    :param transform: None: samples are tensors
    """

    where: str
    model: str
    classes: tuple[str, ...]
    num_classes: int
    transform: TransformSpec | None
    input_shape: tuple[int, ...]
    frozen: Extractor
    whole: Extractor | None
    module: nn.Module
    head: nn.Module | None = None
    task: TrainingTask = field(default_factory=TrainingTask)

    def cut(self, name: str) -> Cut:
        """A cut of the frozen part, by its name or index, or a module's last one.

        :raises ValueError: there is none
        """
        return find_cut(name, self.frozen, self.module, self.input_shape)

    def rest(self, cut: Cut | None) -> Callable[[torch.Tensor], torch.Tensor]:
        """From features at ``cut`` (None: decoded samples) to scores [n, classes]."""
        network = self.frozen if self.whole is None else self.whole
        # By index for raw: the input's name is the model's own affair.
        place = network.resolve("0" if cut is None else cut.name)
        tail = Tail(network, place, inference=True)

        def scores(features: torch.Tensor) -> torch.Tensor:
            with torch.inference_mode():
                outputs = tail(features)
                if self.head is not None:
                    outputs = self.head(outputs)
                return self.task.scores(outputs).flatten(1)

        return scores

    def name_of(self, label: int) -> str:
        """Name of a class; its number where it has no name."""
        return self.classes[label] if label < len(self.classes) else str(label)


@dataclass(frozen=True)
class _Description:
    """``model.json``."""

    path: Path
    model: str
    freeze_at: str
    classes: tuple[str, ...]
    num_classes: int
    input_shape: tuple[int, ...]
    transform: TransformSpec | None
    extractor: str | None
    task: str | None
    own_head: bool


def load(run: str, allow_code: bool = False) -> Product:
    """Read ``model.json`` and ``model.safetensors`` of a run.

    :param allow_code: execute the Python files that ``model.json`` names, if any
    :raises OSError: one of them cannot be read
    :raises DatasetError: they are not what ``hapi train`` writes, or name code
    """
    found = _describe(Path(run, DESCRIPTION_NAME))
    for code in (found.task, found.model if user.is_reference(found.model) else None):
        if code is not None and not allow_code:
            raise DatasetError(
                f"{found.path}: names code, {code}; --allow-code has it executed, if you trust it"
            )
    weights = Path(run, WEIGHTS_NAME)
    try:
        parts = _with_head(found, weights) if found.own_head else _usual(found, weights)
    except BadCut as error:
        raise DatasetError(f"{found.path}: freeze_at: {error.detail}") from None
    frozen, whole, module, head = parts
    return Product(
        str(run), found.model, found.classes, found.num_classes, found.transform,
        found.input_shape, frozen, whole, module, head, hook.load(found.task, 0.0),
    )  # fmt: skip


def _describe(path: Path) -> _Description:
    text = path.read_bytes()
    try:
        document = json.loads(text)
        if (document["format"], document["version"]) != ("hapi-model", 1):
            raise DatasetError(f"{path}: is no model of a version that is known here")
        spec = document["transform"]
        return _Description(
            path=path,
            model=str(document["model"]),
            freeze_at=str(document["freeze_at"]),
            classes=tuple(str(name) for name in document["classes"]),
            num_classes=int(document["num_classes"]),
            input_shape=tuple(int(side) for side in document["input_shape"]),
            transform=None if spec is None else parse_transform(spec),
            extractor=document.get("extractor"),
            task=document.get("task"),
            own_head=document.get("head") is not None,
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DatasetError(f"{path}: is no description of a model: {error!r}") from None


_Parts = tuple[Extractor, Extractor | None, nn.Module, nn.Module | None]


def _usual(found: _Description, weights: Path) -> _Parts:
    """The state dict is that of the architecture."""
    module = load_model(found.model, str(weights), found.num_classes).module
    frozen = make_extractor(module, found.freeze_at, found.input_shape)
    return frozen, make_extractor(module, None, found.input_shape), module, None


def _with_head(found: _Description, weights: Path) -> _Parts:
    """The state dict is that of the frozen part, and of a head that the task made."""
    try:
        state = safetensors.torch.load_file(weights)
    except safetensors.SafetensorError as error:
        raise DatasetError(f"{weights}: no safetensors file: {error}") from None
    trained = {n.removeprefix(HEAD): t for n, t in state.items() if n.startswith(HEAD)}
    module = load_model(found.model, "none").module
    own = {name: tensor for name, tensor in state.items() if not name.startswith(HEAD)}
    _fill(module, own, weights, strict=False)
    frozen, rest = build_transfer(
        module, found.freeze_at, found.num_classes, 0, found.input_shape
    )
    if found.extractor is not None and frozen.digest != found.extractor:
        raise DatasetError(f"{weights}: does not hold the frozen part that {found.path} names")
    task = hook.load(found.task, 0.0)
    head = task.head(rest, torch.zeros(frozen.cuts[-1].shape), found.num_classes)
    _fill(head, trained, weights, strict=True)
    return frozen, None, module, head.eval()


def _fill(
    module: nn.Module, state: Mapping[str, torch.Tensor], weights: Path, *, strict: bool
) -> None:
    try:
        unexpected = module.load_state_dict(dict(state), strict=strict).unexpected_keys
    except RuntimeError as error:
        raise DatasetError(f"{weights}: {' '.join(str(error).split())[:300]}") from None
    if unexpected:
        raise DatasetError(f"{weights}: {unexpected[0]!r} is no tensor of the model")
