"""Architectures by name, from torchvision, timm or a user's file.

``resnet18`` is torchvision's, ``timm/resnet18`` is timm's, ``path/to/file.py:factory`` the user's;
a name that torchvision lacks is looked up in timm. timm is imported only then.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
from dataclasses import dataclass

from torch import nn
from torchvision import models

from hapi_compute.models import user
from hapi_compute.models.hub import cache_only_if_out_of_reach

TORCHVISION, TIMM, FILE = "torchvision", "timm", "file"
_PREFIX = "timm/"
#: these two otherwise convert normalised images themselves, depending on the weights they get;
#: we normalise as they want it instead
_CONVERTING = {"googlenet": {"init_weights": True}, "inception_v3": {"init_weights": True}}


@dataclass(frozen=True)
class Architecture:
    """:param library: ``torchvision``, ``timm`` or ``file``"""

    library: str
    name: str

    def __str__(self) -> str:
        return _PREFIX + self.name if self.library == TIMM else self.name

    @property
    def converting(self) -> bool:
        """Whether the library's pretrained form would convert its input itself."""
        return self.library == TORCHVISION and self.name in _CONVERTING


def timm():
    """The package, imported now.

    :raises ValueError: timm is not installed
    """
    try:
        return importlib.import_module("timm")
    except ImportError:
        raise ValueError("timm models need the package timm (extra 'timm')") from None


def near_names(name: str) -> list[str]:
    """Up to three models of each library whose names look like ``name``; those of timm only, if
    it says ``timm/``."""
    bare = name.removeprefix(_PREFIX)
    near: list[str] = []
    if bare == name:
        near += difflib.get_close_matches(bare, models.list_models(module=models), 3)
    with contextlib.suppress(ValueError):  # Without timm its models are no suggestion either.
        near += [_PREFIX + n for n in difflib.get_close_matches(bare, timm().list_models(), 3)]
    return near


def _unknown(name: str) -> ValueError:
    if ".py" in name or ":" in name:
        return ValueError(f"'{name}': a model of your own is path/to/file.py:FACTORY")
    near = near_names(name)
    hint = f"near: {', '.join(near)}" if near else "'hapi models' lists them"
    return ValueError(f"no model is called '{name}'; {hint}")


def find(name: str) -> Architecture:
    """:raises ValueError: neither library has it (near names are listed), or it needs timm and
    timm is not installed"""
    if user.is_reference(name):
        return Architecture(FILE, name)
    if name in models.list_models(module=models):
        return Architecture(TORCHVISION, name)
    bare = name.removeprefix(_PREFIX)
    try:
        known = timm().is_model(bare)
    except ValueError:
        if name.startswith(_PREFIX):
            raise
        raise _unknown(name) from None
    if not known:
        raise _unknown(name)
    return Architecture(TIMM, bare)


def build(architecture: Architecture, num_classes: int | None = None) -> nn.Module:
    """The architecture with freshly initialised weights (drawn from torch's global generator), or
    as a user's file makes it.

    :param num_classes: None for the library's default, 1000
    :raises ValueError, OSError: see :func:`hapi_compute.models.user.build`
    """
    if architecture.library == FILE:
        return user.build(architecture.name, num_classes)
    options = {} if num_classes is None else {"num_classes": num_classes}
    if architecture.library == TIMM:
        return timm().create_model(architecture.name, pretrained=False, **options)
    if architecture.converting:
        options |= _CONVERTING[architecture.name]
    return models.get_model(architecture.name, weights=None, **options)


def build_pretrained(
    architecture: Architecture, weights: str | None, num_classes: int | None = None
) -> nn.Module:
    """The architecture with the library's own weights, downloaded if they are not yet there.

    :param weights: name of torchvision's enum member, or None for the library's default
    :param num_classes: for a user's factory; weights of the libraries are for their own
    :raises ValueError: there are no such weights for the model
    """
    if architecture.library == FILE:
        if weights is not None:
            raise ValueError(
                f"weights '{weights}': a user's model has default (or none: as the factory makes "
                "it), random:SEED, or a file"
            )
        return build(architecture, num_classes)
    if architecture.library == TIMM:
        if weights is not None:
            raise ValueError("timm names weights in the model's name: timm/resnet50.a1_in1k")
        return _timm_pretrained(architecture)
    member = weights_enum(architecture, weights)
    try:
        if not architecture.converting:
            return models.get_model(architecture.name, weights=member)
        module = build(architecture)
        module.load_state_dict(member.get_state_dict(progress=True, check_hash=True))
    except OSError as error:
        raise OSError(
            f"weights {member} of {architecture.name} cannot be had from {member.url} ({error}); "
            "--weights also takes a file"
        ) from None
    return module


def _timm_pretrained(architecture: Architecture) -> nn.Module:
    if not timm().models.is_model_pretrained(architecture.name):
        raise ValueError(f"timm has no weights for {architecture}")
    with cache_only_if_out_of_reach() as reason:
        try:
            return timm().create_model(architecture.name, pretrained=True)
        except OSError as error:
            raise OSError(
                f"weights of {architecture} are not in the cache and cannot be had "
                f"({reason or str(error).splitlines()[0]}); --weights also takes a file"
            ) from None


def weights_enum(architecture: Architecture, weights: str | None = None):
    """torchvision's weights of that name for the model, or its default ones.

    :raises ValueError: there are none of that name; those that there are are listed
    """
    enum = models.get_model_weights(architecture.name)
    if weights is None:
        return enum.DEFAULT
    if weights not in enum.__members__:
        raise ValueError(
            f"weights '{weights}' are neither random:SEED, default, none, package:NAME, a file, "
            f"nor any of {architecture.name}'s: {', '.join(enum.__members__)}"
        )
    return enum[weights]
