"""Rules of isolation for operations that compute: by element, along dimensions, as products.

A rule says, of a call, along which dimension the samples lie in each output; None: in none.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from swift_hapi.graph.isolation_call import Call, Mixes, dim_of, every, mark_of


def pointwise(call: Call) -> list[int | None]:
    out = call.outputs[0]
    places = {t.dim() - dim_of(t) for t in call.with_samples}
    if len(places) != 1:
        raise Mixes("samples lie along different dimensions")
    dim = out.dim() - places.pop()
    for tensor in call.with_samples:
        if tensor.shape[dim_of(tensor)] != out.shape[dim]:
            raise Mixes("samples are repeated")
    return every(call, dim)


def same(call: Call) -> list[int | None]:
    call.alone()
    return every(call, call.dim)


def nothing(call: Call) -> list[int | None]:
    """Takes only the kind of its argument; whoever follows notes if its shape grows."""
    return every(call, None)


def dims_other(call: Call) -> list[int | None]:
    """Several dimensions are worked along, none of them the samples'."""
    call.alone()
    rank = call.x.dim()
    dims = [d % rank for d in call["dims"]]
    if not dims or call.dim in dims:
        raise Mixes("it works along them")
    return [call.dim]


def reduce(call: Call) -> list[int | None]:
    call.alone()
    dims, rank = call["dim"], call.x.dim()
    dims = {d % rank for d in ([dims] if isinstance(dims, int) else dims or ())}
    if not dims or call.dim in dims:
        raise Mixes("it works along them")
    gone = 0 if call["keepdim"] else sum(d < call.dim for d in dims)
    return every(call, call.dim - gone)


def last(count: int) -> Callable[[Call], list[int | None]]:
    """Works along the last ``count`` dimensions."""

    def rule(call: Call) -> list[int | None]:
        call.alone()
        if call.dim >= call.x.dim() - count:
            raise Mixes("it works along them")
        return every(call, call.dim)

    return rule


def first_of(rank: int) -> Callable[[Call], list[int | None]]:
    """Takes the first of ``rank`` dimensions for the batch."""

    def rule(call: Call) -> list[int | None]:
        call.alone()
        if call.dim != 0 or call.x.dim() != rank:
            raise Mixes("samples do not lie along the first dimension")
        return every(call, 0)

    return rule


def convolution(call: Call) -> list[int | None]:
    call.alone()
    if call.dim != 0:
        raise Mixes("samples do not lie along the first dimension")
    return [0]


def pad(call: Call) -> list[int | None]:
    return last(len(call["pad"]) // 2)(call)


def matrix_product(call: Call, a: torch.Tensor, b: torch.Tensor) -> list[int | None]:
    one, two = dim_of(a), dim_of(b)
    rank = a.dim()
    inner_a, inner_b = rank - 1, b.dim() - 2
    if one == inner_a or two == inner_b:
        raise Mixes("it sums over them")
    if one is None:
        return [two]
    if two is None or (one == two == 0 and rank == 3):
        return [one]
    raise Mixes("samples meet each other")


def mm(call: Call) -> list[int | None]:
    return matrix_product(call, call["self"], call["mat2"])


def addmm(call: Call) -> list[int | None]:
    batched = call["batch1"] is not None
    pair = ("batch1", "batch2") if batched else ("mat1", "mat2")
    dims = matrix_product(call, *(call[name] for name in pair))
    added, out = call["self"], call.outputs[0]
    if mark_of(added) is not None and (
        added.shape != out.shape or dims != [dim_of(added)]
    ):
        raise Mixes("what is added has them elsewhere")
    return dims


def layer_norm(call: Call) -> list[int | None]:
    return last(len(call["normalized_shape"]))(call)


def group_norm(call: Call) -> list[int | None]:
    call.alone()
    if call.dim != 0 or call["N"] != call.x.shape[0]:
        raise Mixes("samples do not lie along the first dimension")
    return every(call, 0)


def batch_norm(call: Call) -> list[int | None]:
    scales = [call["weight"], call["bias"]]
    if call.dim != 1 or any(
        all(t is not scale for scale in scales) or dim_of(t) != 0
        for t in call.with_samples
        if t is not call.x
    ):
        # Where a sample has channels of its own, it has a scale of its own for each of them.
        call.alone()
    if call["training"]:
        # Statistics of each channel: harmless where a sample has channels of its own.
        if call.dim != 1 or call["running_mean"] is not None:
            raise Mixes("batch statistics")
        return [1, *[0 if out.dim() == 1 and out.numel() else None for out in call.outputs[1:]]]
    if call.dim == 1:
        raise Mixes("samples lie along the channels")
    return [call.dim, *[None] * (len(call.outputs) - 1)]


def attention(call: Call) -> list[int | None]:
    tensors = [call[name] for name in ("query", "key", "value")]
    dims = {dim_of(t) for t in tensors} - {None}
    mask = call["attn_mask"] if call["attn_mask"] is not None else call["attn_bias"]
    if len(dims) != 1 or (mask is not None and dim_of(mask) not in (None, *dims)):
        raise Mixes("samples lie along different dimensions")
    dim = dims.pop()
    if any(dim >= t.dim() - 2 for t in tensors):
        raise Mixes("it works along them")
    if mask is not None and dim_of(mask) is not None and mask.dim() != tensors[0].dim():
        raise Mixes("the mask is of another rank")
    first, *others = call.outputs
    return [dim, *[dim if dim < out.dim() - 1 else None for out in others]]


def unfold(call: Call) -> list[int | None]:
    call.alone()
    if call.at("dimension") == call.dim:
        raise Mixes("it works along them")
    return [call.dim]
