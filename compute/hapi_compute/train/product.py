"""What a run leaves behind: the whole model under its original names, usable without us."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import PIL
import safetensors.torch
import torch
import torchvision
from torch import nn

from hapi_compute.data.listing import Dataset
from hapi_compute.train.config import TrainConfig, evaluation_transform
from hapi_compute.train.files import write_whole
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.split import full_state_dict
from swift_hapi.graph.trainable import TrainablePart

WEIGHTS_NAME = "model.safetensors"
DESCRIPTION_NAME = "model.json"
HEAD = "head."  #: prefix of the tensors of a task's own head


def write(
    out: Path,
    config: TrainConfig,
    dataset: Dataset,
    extractor: Extractor,
    trainable: nn.Module,
    input_shape: tuple[int, ...],
    num_classes: int,
) -> None:
    """``model.safetensors``, a state dict to load with ``strict=True``, and ``model.json``.

    Where a task made a head of its own, the state dict has the frozen part under its original
    names, and the head under ``head.``.
    """
    if isinstance(trainable, TrainablePart):
        state = full_state_dict(extractor, trainable)
    else:
        state = {n: t for n, t in extractor.tensors.items() if n not in extractor.constants}
        state |= {f"{HEAD}{name}": tensor for name, tensor in trainable.state_dict().items()}
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
    write_whole(out / WEIGHTS_NAME, safetensors.torch.save(tensors, {"format": "pt"}))
    transform = evaluation_transform(config.transform, config.test_transform)
    document = {
        "format": "hapi-model",
        "version": 1,
        "model": config.model,
        "weights": config.weights,
        "freeze_at": config.freeze_at,
        "task": config.task,
        "head": None if isinstance(trainable, TrainablePart) else HEAD,
        "extractor": extractor.digest,
        "num_classes": num_classes,
        "classes": list(dataset.classes),
        "transform": None if transform is None else str(transform),
        "input_shape": list(input_shape),
        "dataset": dataset.identity,
        "options": config.identity(),
        "versions": {
            "swift-hapi": metadata.version("swift-hapi"),
            "torch": torch.__version__,
            "torchvision": torchvision.__version__,
            "pillow": PIL.__version__,
        },
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    write_whole(out / DESCRIPTION_NAME, text.encode())
