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
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from swift_hapi.protocol.errors import ModelInvalid

#: where a slice that takes everything ends
_END = 2**62


class _Mixes(Exception):
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


def _dim_of(tensor: torch.Tensor) -> int | None:
    place = mark_of(tensor)
    return None if place is None else place.dim


class Isolation:
    """Follows one run with batches of ``batch`` samples.

    ``trail`` lists, for every operation on samples, where they lie and in how many rows each: it
    must be the same for another batch size.
    """

    def __init__(self, batch: int):
        self.batch = batch
        self.trail: list[tuple] = []

    def before(self, op, args: tuple) -> None:
        """Look at what :meth:`follow` will not see any more: an operation that changes the shape
        of its argument itself. Only strides of dimensions without length may change.

        :raises ModelInvalid: more than that
        """
        if op.overloadpacket.__name__ != "as_strided_":
            return
        x, size, stride, *offset = args
        known = zip(x.shape, x.stride(), stride, strict=True)
        if tuple(size) != tuple(x.shape) or any(n > 1 and a != b for n, a, b in known) or offset:
            raise ModelInvalid("as_strided_ may mix the samples of a batch")

    def follow(self, op, args: tuple, kwargs: dict, outputs: tuple) -> None:
        """Mark what ``op`` has made of its arguments.

        :raises ModelInvalid: it may mix samples
        """
        tensors = list(_tensors((args, kwargs)))
        with_samples = [t for t in tensors if mark_of(t) is not None]
        if not with_samples:
            for out in outputs:
                mark(out, None)
            return
        name = op.overloadpacket.__name__
        try:
            call = _Call(op, args, kwargs, outputs, with_samples, self.batch)
            dims = _rule(op, name)(call)
        except _Mixes as why:
            raise ModelInvalid(f"{name} may mix the samples of a batch: {why}") from None
        _check_overwriting(op, args, with_samples)
        for out, dim in zip(outputs, dims, strict=True):
            place = Place(dim, call.times) if isinstance(dim, int) else dim
            if place is not None:
                rows = place.times * self.batch
                if not 0 <= place.dim < out.dim() or out.shape[place.dim] % rows:
                    raise ModelInvalid(f"{name} may mix the samples of a batch")
                before = math.prod(out.shape[: place.dim])
                self.trail.append((name, *place, out.shape[place.dim] // rows, before))
            mark(out, place)


def _tensors(value):
    if torch.is_tensor(value):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _check_overwriting(op, args: tuple, with_samples: list[torch.Tensor]) -> None:
    """Samples may be written over samples that lie alike, never into memory that has none: that
    memory may be known by other names."""
    if op._schema.is_mutable:
        target = args[0] if args else None
        if not torch.is_tensor(target) or mark_of(target) is None:
            raise ModelInvalid(
                f"{op.overloadpacket.__name__} writes samples into memory that has none"
            )


class _Call:
    """One call, its arguments by name."""

    def __init__(self, op, args, kwargs, outputs, with_samples, batch):
        self.outputs = outputs
        self.with_samples = with_samples
        self.batch = batch
        times = {mark_of(t).times for t in with_samples}
        if len(times) != 1:
            raise _Mixes("samples lie in different order")
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
            raise _Mixes("not its first argument holds them")
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
            raise _Mixes("an argument other than the first holds samples")


@functools.cache
def _signature(op) -> tuple[tuple[str, ...], dict]:
    arguments = op._schema.arguments
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    names = tuple(a.name for a in arguments)
    # In the order of the schema, so that the first argument comes first.
    return names, {name: defaults.get(name) for name in names}


def _every(call: _Call, dim: int | None) -> list[int | None]:
    return [dim] * len(call.outputs)


# Rules: a call to the samples' dimension in each output.


def _pointwise(call: _Call) -> list[int | None]:
    out = call.outputs[0]
    places = {t.dim() - _dim_of(t) for t in call.with_samples}
    if len(places) != 1:
        raise _Mixes("samples lie along different dimensions")
    dim = out.dim() - places.pop()
    for tensor in call.with_samples:
        if tensor.shape[_dim_of(tensor)] != out.shape[dim]:
            raise _Mixes("samples are repeated")
    return _every(call, dim)


def _same(call: _Call) -> list[int | None]:
    call.alone()
    return _every(call, call.dim)


def _nothing(call: _Call) -> list[int | None]:
    """Takes only shape and kind of its argument."""
    return _every(call, None)


def _view(call: _Call) -> list[Place]:
    call.alone()
    x, out = call.x, call.outputs[0]
    # So many times are all samples passed by before the innermost dimensions repeat.
    before = math.prod(x.shape[: call.dim]) * call.times
    product = 1
    for dim, size in enumerate(out.shape):
        if product * size > before:
            times, rest = divmod(before, product)
            if rest or size % (times * call.batch):
                break
            return [Place(dim, times)]
        product *= size
    raise _Mixes("the new shape does not keep them in order")


def _permute(call: _Call) -> list[int | None]:
    call.alone()
    rank = call.x.dim()
    return [[d % rank for d in call["dims"]].index(call.dim)]


def _transpose(call: _Call) -> list[int | None]:
    call.alone()
    swap = {call.at("dim0"): call.at("dim1"), call.at("dim1"): call.at("dim0")}
    return [swap.get(call.dim, call.dim)]


def _t(call: _Call) -> list[int | None]:
    call.alone()
    return [1 - call.dim if call.x.dim() == 2 else call.dim]


def _expand(call: _Call) -> list[int | None]:
    call.alone()
    out = call.outputs[0]
    dim = call.dim + out.dim() - call.x.dim()
    if out.shape[dim] != call.x.shape[call.dim]:
        raise _Mixes("samples are repeated")
    return [dim]


def _repeat(call: _Call) -> list[int | None]:
    call.alone()
    dim = call.dim + len(call["repeats"]) - call.x.dim()
    if call["repeats"][dim] != 1:
        raise _Mixes("samples are repeated")
    return [dim]


def _unsqueeze(call: _Call) -> list[int | None]:
    call.alone()
    return [call.dim + (call.at("dim", call.x.dim() + 1) <= call.dim)]


def _squeeze(call: _Call) -> list[int | None]:
    call.alone()
    rank, dims = call.x.dim(), call["dim"]
    if dims is None:
        dims = range(rank)
    dims = {d % rank for d in ([dims] if isinstance(dims, int) else dims)}
    gone = [d for d in dims if d < call.dim and call.x.shape[d] == 1]
    return [call.dim - len(gone)]


def _other_dim(call: _Call) -> int:
    """The argument ``dim``, which must not be the samples'."""
    call.alone()
    dim = call.at("dim")
    if dim == call.dim:
        raise _Mixes("it works along them")
    return dim


def _along_other(call: _Call) -> list[int | None]:
    _other_dim(call)
    return _every(call, call.dim)


def _select(call: _Call) -> list[int | None]:
    return _every(call, call.dim - (_other_dim(call) < call.dim))


def _slice(call: _Call) -> list[int | None]:
    call.alone()
    if call.at("dim") == call.dim and not (
        call["start"] in (None, 0)
        and call["step"] == 1
        and (call["end"] is None or call["end"] >= _END)
    ):
        raise _Mixes("it takes some of them")
    return [call.dim]


def _joined(call: _Call) -> int:
    """Dimension of the samples in all the tensors of a list."""
    tensors = call["tensors"]
    dims = {_dim_of(t) for t in tensors} - {None}
    if len(dims) != 1:
        raise _Mixes("samples lie along different dimensions")
    return dims.pop()


def _cat(call: _Call) -> list[int | None]:
    dim = _joined(call)
    if call.at("dim", call.outputs[0].dim()) == dim:
        raise _Mixes("it works along them")
    return [dim]


def _stack(call: _Call) -> list[int | None]:
    dim = _joined(call)
    return [dim + (call.at("dim", call.outputs[0].dim()) <= dim)]


def _index(call: _Call) -> list[int | None]:
    x, indices = call["self"], call["indices"]
    given = [i for i, index in enumerate(indices) if index is not None]
    if mark_of(x) is None:
        # Rows of a table, looked up by ids.
        if given != [0]:
            raise _Mixes("several indices hold them")
        return [_dim_of(indices[0])]
    call.alone()
    dim = _dim_of(x)
    if dim in given or given != list(range(given[0], given[-1] + 1)):
        raise _Mixes("it works along them")
    if any(indices[i].dtype in (torch.bool, torch.uint8) for i in given):
        raise _Mixes("a mask selects")
    if dim < given[0]:
        return [dim]
    rank = max(indices[i].dim() for i in given)
    return [dim - len(given) + rank]


def _index_select(call: _Call) -> list[int | None]:
    if mark_of(call["self"]) is None:
        return [call.at("dim", call["self"].dim())]
    return _along_other(call)


def _embedding(call: _Call) -> list[int | None]:
    if mark_of(call["weight"]) is not None:
        raise _Mixes("they are the table")
    return [_dim_of(call["indices"])]


def _dims_other(call: _Call) -> list[int | None]:
    """Several dimensions are worked along, none of them the samples'."""
    call.alone()
    rank = call.x.dim()
    dims = [d % rank for d in call["dims"]]
    if not dims or call.dim in dims:
        raise _Mixes("it works along them")
    return [call.dim]


def _reduce(call: _Call) -> list[int | None]:
    call.alone()
    dims, rank = call["dim"], call.x.dim()
    dims = {d % rank for d in ([dims] if isinstance(dims, int) else dims or ())}
    if not dims or call.dim in dims:
        raise _Mixes("it works along them")
    gone = 0 if call["keepdim"] else sum(d < call.dim for d in dims)
    return _every(call, call.dim - gone)


def _last(count: int) -> Callable[[_Call], list[int | None]]:
    """Works along the last ``count`` dimensions."""

    def rule(call: _Call) -> list[int | None]:
        call.alone()
        if call.dim >= call.x.dim() - count:
            raise _Mixes("it works along them")
        return _every(call, call.dim)

    return rule


def _first_of(rank: int) -> Callable[[_Call], list[int | None]]:
    """Takes the first of ``rank`` dimensions for the batch."""

    def rule(call: _Call) -> list[int | None]:
        call.alone()
        if call.dim != 0 or call.x.dim() != rank:
            raise _Mixes("samples do not lie along the first dimension")
        return _every(call, 0)

    return rule


def _convolution(call: _Call) -> list[int | None]:
    call.alone()
    if call.dim != 0:
        raise _Mixes("samples do not lie along the first dimension")
    return [0]


def _pad(call: _Call) -> list[int | None]:
    return _last(len(call["pad"]) // 2)(call)


def _matrix_product(call: _Call, a: torch.Tensor, b: torch.Tensor) -> list[int | None]:
    one, two = _dim_of(a), _dim_of(b)
    rank = a.dim()
    inner_a, inner_b = rank - 1, b.dim() - 2
    if one == inner_a or two == inner_b:
        raise _Mixes("it sums over them")
    if one is None:
        return [two]
    if two is None or (one == two == 0 and rank == 3):
        return [one]
    raise _Mixes("samples meet each other")


def _mm(call: _Call) -> list[int | None]:
    return _matrix_product(call, call["self"], call["mat2"])


def _addmm(call: _Call) -> list[int | None]:
    if mark_of(call["self"]) is not None:
        raise _Mixes("they are what is added")
    batched = call["batch1"] is not None
    pair = ("batch1", "batch2") if batched else ("mat1", "mat2")
    return _matrix_product(call, *(call[name] for name in pair))


def _layer_norm(call: _Call) -> list[int | None]:
    return _last(len(call["normalized_shape"]))(call)


def _group_norm(call: _Call) -> list[int | None]:
    call.alone()
    if call.dim != 0 or call["N"] != call.x.shape[0]:
        raise _Mixes("samples do not lie along the first dimension")
    return _every(call, 0)


def _batch_norm(call: _Call) -> list[int | None]:
    call.alone()
    if call["training"]:
        # Statistics of each channel: harmless where a sample has channels of its own.
        if call.dim != 1 or call["running_mean"] is not None:
            raise _Mixes("batch statistics")
        return [1, *[0 if out.dim() == 1 and out.numel() else None for out in call.outputs[1:]]]
    if call.dim == 1:
        raise _Mixes("samples lie along the channels")
    return [call.dim, *[None] * (len(call.outputs) - 1)]


def _attention(call: _Call) -> list[int | None]:
    tensors = [call[name] for name in ("query", "key", "value")]
    dims = {_dim_of(t) for t in tensors} - {None}
    mask = call["attn_mask"] if call["attn_mask"] is not None else call["attn_bias"]
    if len(dims) != 1 or (mask is not None and _dim_of(mask) not in (None, *dims)):
        raise _Mixes("samples lie along different dimensions")
    dim = dims.pop()
    if any(dim >= t.dim() - 2 for t in tensors):
        raise _Mixes("it works along them")
    if mask is not None and _dim_of(mask) is not None and mask.dim() != tensors[0].dim():
        raise _Mixes("the mask is of another rank")
    first, *others = call.outputs
    return [dim, *[dim if dim < out.dim() - 1 else None for out in others]]


def _unfold(call: _Call) -> list[int | None]:
    call.alone()
    if call.at("dimension") == call.dim:
        raise _Mixes("it works along them")
    return [call.dim]


def _for(names: str, rule: Callable) -> dict[str, Callable]:
    return dict.fromkeys(names.split(), rule)


_RULES: dict[str, Callable[[_Call], list[int | None]]] = {
    **_for(
        "clone contiguous detach alias lift_fresh _to_copy positive dropout native_dropout "
        "_conj hardswish hardsigmoid hardtanh silu mish gelu elu celu selu leaky_relu softplus "
        "log_sigmoid_forward relu6 clamp clamp_min clamp_max rsub hardswish_ hardsigmoid_ "
        "hardtanh_ silu_ mish_ elu_ celu_ selu_ leaky_relu_ relu6_ nan_to_num "
        "fill_ zero_ as_strided_",
        _same,
    ),
    **_for("_prelu_kernel copy_ masked_fill masked_fill_ addcmul", _pointwise),
    **_for(
        "empty_like zeros_like ones_like full_like new_empty new_zeros new_ones new_full "
        "scalar_tensor",
        _nothing,
    ),
    **_for("view _unsafe_view _reshape_alias reshape", _view),
    "permute": _permute,
    "transpose": _transpose,
    "t": _t,
    "expand": _expand,
    "repeat": _repeat,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "slice": _slice,
    **_for("select unbind", _select),
    **_for(
        "split split_with_sizes chunk tensor_split cumsum _softmax _log_softmax _safe_softmax "
        "softmax log_softmax glu narrow",
        _along_other,
    ),
    "cat": _cat,
    "stack": _stack,
    **_for("index _unsafe_index", _index),
    "index_select": _index_select,
    "embedding": _embedding,
    **_for("roll flip", _dims_other),
    **_for(
        "sum mean amax amin var std norm linalg_vector_norm prod max min any all var_mean "
        "logsumexp",
        _reduce,
    ),
    **_for("max_pool1d avg_pool1d adaptive_avg_pool1d upsample_nearest1d "
                    "upsample_linear1d reflection_pad1d replication_pad1d", _last(1)),
    **_for(
        "max_pool2d max_pool2d_with_indices avg_pool2d adaptive_avg_pool2d _adaptive_avg_pool2d "
        "adaptive_max_pool2d upsample_nearest2d upsample_bilinear2d upsample_bicubic2d "
        "_upsample_nearest_exact2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
        "reflection_pad2d replication_pad2d",
        _last(2),
    ),
    **_for(
        "pixel_shuffle pixel_unshuffle max_pool3d max_pool3d_with_indices avg_pool3d "
        "adaptive_avg_pool3d _adaptive_avg_pool3d upsample_trilinear3d upsample_nearest3d",
        _last(3),
    ),
    **_for("channel_shuffle native_channel_shuffle im2col", _first_of(4)),
    "col2im": _first_of(3),
    "unfold": _unfold,
    "convolution": _convolution,
    "constant_pad_nd": _pad,
    **_for("mm bmm", _mm),
    **_for("addmm baddbmm", _addmm),
    **_for("native_layer_norm _fused_rms_norm", _layer_norm),
    "native_group_norm": _group_norm,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    **_for(
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math "
        "_scaled_dot_product_efficient_attention",
        _attention,
    ),
}  # fmt: skip


_POINTWISE = torch.Tag.pointwise


@functools.cache
def _rule(op, name: str) -> Callable[[_Call], list[int | None]]:
    rule = _RULES.get(name)
    if rule is None and _POINTWISE in op.tags:
        return _pointwise
    if rule is None:
        raise _Mixes("it is not known to keep them apart")
    return rule
