"""One operation in a run that is followed: where the samples of a batch lie in its arguments."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from swift_hapi.protocol.errors import ModelInvalid


class Mixes(Exception):
    """The operation is not known to keep samples apart."""


class Place(NamedTuple):
    """Where the samples of a batch lie: along dimension ``dim``, whose rows are ``times`` times
    all samples in order."""

    dim: int
    times: int = 1


def mark(tensor: torch.Tensor, place: Place | None) -> None:
    """Say where the samples lie in a tensor; None: it holds none."""
    tensor._hapi_place = place


def mark_of(tensor: torch.Tensor) -> Place | None:
    """:raises ModelInvalid: nobody knows where the tensor comes from"""
    try:
        return tensor._hapi_place
    except AttributeError:
        raise ModelInvalid("a tensor cannot be followed") from None


def dim_of(tensor: torch.Tensor) -> int | None:
    place = mark_of(tensor)
    return None if place is None else place.dim


class Call:
    """One call, its arguments by name."""

    def __init__(self, op, args, kwargs, outputs, with_samples, batch):
        self.outputs = outputs
        self.with_samples = with_samples
        self.batch = batch
        times = {mark_of(t).times for t in with_samples}
        if len(times) != 1:
            raise Mixes("samples lie in different order")
        self.times = times.pop()
        names, defaults = _signature(op)
        self._values = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}

    def __getitem__(self, name: str):
        return self._values.get(name)

    @property
    def x(self) -> torch.Tensor:
        """The first argument, which must hold samples."""
        value = next(iter(self._values.values()))
        if not torch.is_tensor(value) or mark_of(value) is None:
            raise Mixes("not its first argument holds them")
        return value

    @property
    def dim(self) -> int:
        """The samples' dimension in the first argument."""
        return mark_of(self.x).dim

    def at(self, name: str, rank: int | None = None) -> int:
        """A dimension given by number, counted from the front."""
        rank = self.x.dim() if rank is None else rank
        value = self[name]
        return value + rank if value < 0 else value

    def alone(self) -> None:
        """Only the first argument holds samples."""
        if any(t is not self.x for t in self.with_samples):
            raise Mixes("an argument other than the first holds samples")


@functools.cache
def _signature(op) -> tuple[tuple[str, ...], dict]:
    arguments = op._schema.arguments
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    names = tuple(a.name for a in arguments)
    # In the order of the schema, so that the first argument comes first.
    return names, {name: defaults.get(name) for name in names}


def every(call: Call, dim: int | None) -> list[int | None]:
    return [dim] * len(call.outputs)
