"""A model by name, with weights and with the transform that belongs to them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from hapi_compute.models import architectures, preprocessing, user
from hapi_compute.models import weights as stored
from swift_hapi.protocol.transform import TransformSpec


@dataclass(frozen=True)
class LoadedModel:
    """
    :param module: in eval mode, float32, on the CPU
    :param transform: the model's preprocessing in the grammar of ``X-Hapi-Transform``; None
        where a user's model does not say
    :param input_shape: of one sample, [3, height, width] after that transform
    :param name: ``resnet18``, ``timm/resnet18``, ``path/to/file.py:factory``
    :param weights: as asked for
    :param input_dtype: ``float32``, or ``int64`` for a user's model that takes ids
    """

    module: nn.Module
    transform: str | None
    input_shape: tuple[int, ...]
    name: str
    weights: str
    input_dtype: str = "float32"

    @property
    def dtype(self) -> torch.dtype:
        """``input_dtype`` as torch names it."""
        return getattr(torch, self.input_dtype)


def _seed(text: str) -> int:
    digits = text.removeprefix("random:")
    if not (digits.isascii() and digits.isdigit() and int(digits) < 2**63):
        raise ValueError(f"weights '{text}': random:SEED wants an integer from 0 to 2^63 - 1")
    return int(digits)


def load_model(name: str, weights: str, num_classes: int | None = None) -> LoadedModel:
    """Build a model.

    :param name: torchvision model, ``timm/<name>``, a timm model that torchvision lacks, or
        ``path/to/file.py:factory`` (see :mod:`hapi_compute.models.user`)
    :param weights: ``random:SEED`` (the same on every machine with the same libraries and kind
        of processor: torch rounds what it draws differently without vector instructions);
        ``none`` (initialised from torch's global generator); ``default`` or a torchvision name
        such as ``IMAGENET1K_V1`` (downloaded unless cached; ``default`` of a user's model is what
        its factory makes); ``package:NAME`` (from an installed
        Python package); or the path of a ``.safetensors`` or ``.pth`` file
    :param num_classes: width of the classifier, for files of models trained for so many classes;
        None keeps the architecture's own
    :raises ValueError: unknown model or weights, or weights that do not fit (keys are listed)
    :raises OSError: a file cannot be read
    """
    found = architectures.find(name)
    asked = None  # torchvision's name of the weights, which decides the transform
    special: TransformSpec | None = None
    if weights.startswith("random:"):
        seed = _seed(weights)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = architectures.build(found, num_classes)
        stored.randomise_statistics(module, seed)
    elif weights == "none":
        module = architectures.build(found, num_classes)
    elif weights.startswith("package:"):
        package = stored.package_weights(weights.removeprefix("package:"), found.name)
        module = architectures.build(found, num_classes)
        stored.load_package(package, module)
        special = preprocessing.package_transform(package)
    elif Path(weights).suffix in stored.SUFFIXES:
        state = stored.read_state_dict(Path(weights))
        module = architectures.build(found, num_classes)
        stored.apply_state_dict(module, state, weights)
    elif "." in weights or os.sep in weights:
        raise ValueError(f"weights '{weights}': a file must end in {' '.join(stored.SUFFIXES)}")
    else:
        if num_classes not in (None, 1000) and found.library != architectures.FILE:
            raise ValueError(f"weights '{weights}' are for 1000 classes, not {num_classes}")
        asked = None if weights == "default" else weights
        module = architectures.build_pretrained(found, asked, num_classes)
    if found.library == architectures.FILE:
        user.check_weights(module, found.name)
        says = user.takes(module)
        return LoadedModel(
            module.eval(), says.transform, says.input_shape, str(found), weights, says.input_dtype
        )
    spec = special or preprocessing.transform_of(found, module, asked)
    return LoadedModel(module.eval(), str(spec), (3, *spec.size), str(found), weights)
