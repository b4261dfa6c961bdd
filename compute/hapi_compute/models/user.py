"""A user's own model: ``path/to/file.py:factory``.

The file is executed, on the compute tier only; what reaches the storage tier is the extractor
file made from it. ``factory()`` returns an ``nn.Module``; if it has a parameter ``num_classes``,
that is passed on when it is known. What the module takes can be told by attributes of it, all
optional: ``hapi_transform`` (grammar of ``X-Hapi-Transform``), ``hapi_input_shape`` (of one
sample) and ``hapi_input_dtype`` (``float32``, or ``int64`` for ids).
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from swift_hapi.protocol.errors import BadTransform
from swift_hapi.protocol.transform import parse_transform

_REFERENCE = re.compile(r"(?P<path>.+\.py):(?P<factory>[A-Za-z_][A-Za-z0-9_]*)", re.DOTALL)
IMAGE = (3, 224, 224)
DTYPES = ("float32", "int64")


@dataclass(frozen=True)
class Takes:
    """What a model takes: ``transform`` is None when it does not say."""

    transform: str | None
    input_shape: tuple[int, ...]
    input_dtype: str


def is_reference(name: str) -> bool:
    return _REFERENCE.fullmatch(name) is not None


def build(reference: str, num_classes: int | None = None) -> nn.Module:
    """Execute the file and call its factory.

    :raises OSError: the file cannot be read
    :raises ValueError: it fails, or has no such factory, or that returns no module; or
        ``num_classes`` is given and the factory takes none
    """
    factory = _factory(reference)
    options = {}
    if num_classes is not None:
        if "num_classes" not in inspect.signature(factory).parameters:
            raise ValueError(f"{reference} takes no num_classes")
        options["num_classes"] = num_classes
    module = _made(reference, factory, **options)
    if not isinstance(module, nn.Module):
        raise ValueError(f"{reference} returned {type(module).__name__}, not an nn.Module")
    return module


def call(reference: str):
    """Execute the file; what its factory makes, whatever that is.

    :raises OSError: the file cannot be read
    :raises ValueError: it fails, or has no such factory; or ``reference`` is none
    """
    if not is_reference(reference):
        raise ValueError(f"{reference!r}: want path/to/file.py:factory")
    return _made(reference, _factory(reference))


def _factory(reference: str):
    found = _REFERENCE.fullmatch(reference)
    path, name = Path(found["path"]).resolve(), found["factory"]
    factory = getattr(_execute(path), name, None)
    if isinstance(factory, nn.Module):
        raise ValueError(f"{reference} is a module: want a function or class that makes one")
    if not callable(factory):
        raise ValueError(f"{path} has no function '{name}'")
    return factory


def _made(reference: str, factory, **options):
    try:
        return factory(**options)
    except Exception as error:
        raise ValueError(f"{reference} failed: {type(error).__name__}: {error}") from error


def _execute(path: Path):
    name = f"hapi_user_{re.sub('[^A-Za-z0-9]', '_', str(path))}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise FileNotFoundError(f"no model file {path}")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    # As for a script: its neighbours can be imported.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(f"{path} failed: {type(error).__name__}: {error}") from error
    return module


def check_weights(module: nn.Module, reference: str) -> None:
    """:raises ValueError: they are not float32, or not in the CPU's memory"""
    for name, tensor in module.state_dict(keep_vars=True).items():
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise ValueError(f"{reference}: '{name}' is {tensor.dtype}, want float32: .float()")
        if tensor.device.type != "cpu":
            raise ValueError(f"{reference}: '{name}' is on {tensor.device}, want the CPU: .cpu()")


def takes(module: nn.Module) -> Takes:
    """What the module says of its input, or that it takes images as ImageNet's models do.

    :raises ValueError: an attribute has a bad value
    """
    transform = getattr(module, "hapi_transform", None)
    dtype = getattr(module, "hapi_input_dtype", "float32")
    if dtype not in DTYPES:
        raise ValueError(f"hapi_input_dtype={dtype!r}: want {' or '.join(DTYPES)}")
    shape = getattr(module, "hapi_input_shape", None)
    if transform is not None:
        try:
            spec = parse_transform(transform)
        except BadTransform as error:
            raise ValueError(f"hapi_transform: {error}") from error
        shape = shape or (3, *spec.size)
    shape = IMAGE if shape is None else tuple(shape)
    if not shape or not all(isinstance(side, int) and side > 0 for side in shape):
        raise ValueError(f"hapi_input_shape={shape!r}: want positive integers")
    return Takes(transform, shape, dtype)
