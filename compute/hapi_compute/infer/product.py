"""The product of ``hapi train``, ready to run: whole network, classes, preprocessing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hapi_compute.data.errors import DatasetError
from hapi_compute.models import load_model
from hapi_compute.train.product import DESCRIPTION_NAME, WEIGHTS_NAME
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.errors import BadCut
from swift_hapi.protocol.transform import TransformSpec, parse_transform


@dataclass(frozen=True)
class Product:
    """
    :param frozen: the network up to its freeze point, which training has not changed: its digest
        is that of the run, so the store may have it already
    :param whole: all of it; has the cuts of ``frozen``, by the same names
    :param transform: None: samples are tensors
    """

    where: str
    model: str
    classes: tuple[str, ...]
    num_classes: int
    transform: TransformSpec | None
    input_shape: tuple[int, ...]
    frozen: Extractor
    whole: Extractor

    def cut(self, name: str) -> Cut:
        """A cut of the frozen part.

        :raises ValueError: there is none of that name or index
        """
        try:
            return self.frozen.resolve(name)
        except BadCut as error:
            raise ValueError(f"split={name!r}: {error.detail}") from None

    def name_of(self, label: int) -> str:
        """Name of a class; its number where it has no name."""
        return self.classes[label] if label < len(self.classes) else str(label)


def load(run: str) -> Product:
    """Read ``model.json`` and ``model.safetensors`` of a run.

    :raises OSError: one of them cannot be read
    :raises DatasetError: they are not what ``hapi train`` writes
    """
    path = Path(run, DESCRIPTION_NAME)
    text = path.read_bytes()
    try:
        document = json.loads(text)
        if (document["format"], document["version"]) != ("hapi-model", 1):
            raise DatasetError(f"{path}: is no model of a version that is known here")
        model, freeze_at = document["model"], document["freeze_at"]
        num_classes = int(document["num_classes"])
        classes = tuple(str(name) for name in document["classes"])
        shape = tuple(int(side) for side in document["input_shape"])
        spec = document["transform"]
        spec = None if spec is None else parse_transform(spec)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DatasetError(f"{path}: is no description of a model: {error!r}") from None
    module = load_model(model, str(Path(run, WEIGHTS_NAME)), num_classes).module
    try:
        frozen = make_extractor(module, freeze_at, shape)
    except BadCut as error:
        raise DatasetError(f"{path}: freeze_at {freeze_at!r}: {error.detail}") from None
    whole = make_extractor(module, None, shape)
    return Product(str(run), model, classes, num_classes, spec, shape, frozen, whole)
