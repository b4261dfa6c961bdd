"""Proof that a network keeps the samples of a batch apart.

The storage side runs samples of several requests, of several accounts even, as one batch. A
network that mixes them (``x.flip(0)``, a mean over the batch) would carry one account's data into
another's features. So a graph is followed while it runs on meta tensors: of every tensor that
depends on the input we know the dimension along which the samples lie: one after the other, each
in as many rows as the next, all that perhaps several times over (tokens x samples, folded into
one dimension). An operation that is not known to keep them so is refused.

What holds for batches of two and of three holds for every batch, if it holds in the same way
(:attr:`Isolation.trail`) and if numbers in the graph grow with the batch or not at all
(``numbers.py``): then shapes are the same formulas of the batch size throughout, and the values of
a sample never reach a shape.

Tensors may have a row for each sample without holding any (``torch.zeros(n, 1)``, a token expanded
to the batch). A sum over those rows would tell how many samples there are, and with them how busy
others are; so what has another shape for another batch size is followed like samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from swift_hapi.graph.isolation_call import Call, Mixes, Place, mark, mark_of
from swift_hapi.graph.isolation_rules import rule_of
from swift_hapi.graph.nested import tensors_in
from swift_hapi.protocol.errors import ModelInvalid


class Isolation:
    """Follows one run with batches of ``batch`` samples.

    ``trail`` lists, for every operation on samples, where they lie and in how many rows each: it
    must be the same for another batch size. ``squeezed`` has the sizes of all dimensions that a
    squeeze would drop if they were 1: none of them may grow with the batch, or one sample alone
    would have another shape than among others. ``shapes`` has those of all that operations gave;
    ``grown`` says whether some that hold no samples have another than in the other run.

    :param other: ``shapes`` of a run with another batch size
    """

    def __init__(self, batch: int, other: Sequence[tuple[int, ...]] | None = None):
        self.batch = batch
        self.trail: list[tuple] = []
        self.squeezed: list[int] = []
        self.shapes: list[tuple[int, ...]] = []
        self.grown = False
        self._other = other

    def before(self, op, args: tuple) -> None:
        """Look at what :meth:`follow` will not see any more: an operation that changes the shape
        of its argument itself. Only strides of dimensions without length may change.

        :raises ModelInvalid: more than that
        """
        name = op.overloadpacket.__name__
        if name in ("squeeze", "squeeze_"):
            self.squeezed += _squeezed(*args)
        if name != "as_strided_":
            return
        x, size, stride, *offset = args
        known = zip(x.shape, x.stride(), stride, strict=True)
        if tuple(size) != tuple(x.shape) or any(n > 1 and a != b for n, a, b in known) or offset:
            raise ModelInvalid("as_strided_ may mix the samples of a batch")

    def follow(self, op, args: tuple, kwargs: dict, outputs: tuple) -> None:
        """Mark what ``op`` has made of its arguments.

        :raises ModelInvalid: it may mix samples
        """
        tensors = list(tensors_in((args, kwargs)))
        with_samples = [t for t in tensors if mark_of(t) is not None]
        if not with_samples:
            for out in outputs:
                self._mark(out, None)
            return
        name = op.overloadpacket.__name__
        try:
            call = Call(op, args, kwargs, outputs, with_samples, self.batch)
            dims = rule_of(op, name)(call)
        except Mixes as why:
            raise ModelInvalid(f"{name} may mix the samples of a batch: {why}") from None
        _check_overwriting(op, args, with_samples)
        for out, dim in zip(outputs, dims, strict=True):
            place = Place(dim, call.times) if isinstance(dim, int) else dim
            if place is not None:
                self._note(name, out, place)
            self._mark(out, place)

    def _note(self, name: str, out: torch.Tensor, place: Place) -> None:
        rows = place.times * self.batch
        if not 0 <= place.dim < out.dim() or out.shape[place.dim] % rows:
            raise ModelInvalid(f"{name} may mix the samples of a batch")
        before = math.prod(out.shape[: place.dim])
        self.trail.append((name, *place, out.shape[place.dim] // rows, before))

    def _mark(self, out: torch.Tensor, place: Place | None) -> None:
        shape = tuple(out.shape)
        at = len(self.shapes)
        self.shapes.append(shape)
        if place is None and self._other is not None:
            other = self._other[at] if at < len(self._other) else ()
            if len(other) != len(shape):
                raise ModelInvalid("how samples lie in a batch depends on how many they are")
            dims = [dim for dim, size in enumerate(shape) if size != other[dim]]
            if len(dims) > 1:
                raise ModelInvalid("a tensor grows faster than the batch")
            if dims:
                place = Place(dims[0])
                self.grown = True
                self._note("rows", out, place)
        mark(out, place)


def _squeezed(x: torch.Tensor, dims=None) -> list[int]:
    """Sizes of the dimensions that are to be squeezed out."""
    dims = range(x.dim()) if dims is None else [dims] if isinstance(dims, int) else dims
    return [x.shape[dim] for dim in dims if -x.dim() <= dim < x.dim()]


def _check_overwriting(op, args: tuple, with_samples: list[torch.Tensor]) -> None:
    """Samples may be written over samples that lie alike, never into memory that has none: that
    memory may be known by other names."""
    if op._schema.is_mutable:
        target = args[0] if args else None
        if not torch.is_tensor(target) or mark_of(target) is None:
            raise ModelInvalid(
                f"{op.overloadpacket.__name__} writes samples into memory that has none"
            )
