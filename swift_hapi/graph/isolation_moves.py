"""Rules of isolation for operations that move elements, join tensors or look rows up.

A rule says, of a call, along which dimension the samples lie in each output; None: in none.
"""

from __future__ import annotations

import math

import torch

from swift_hapi.graph.isolation_call import Call, Mixes, Place, dim_of, every, mark_of

#: where a slice that takes everything ends
_END = 2**62


def view(call: Call) -> list[Place]:
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
    raise Mixes("the new shape does not keep them in order")


def permute(call: Call) -> list[int | None]:
    call.alone()
    rank = call.x.dim()
    return [[d % rank for d in call["dims"]].index(call.dim)]


def transpose(call: Call) -> list[int | None]:
    call.alone()
    swap = {call.at("dim0"): call.at("dim1"), call.at("dim1"): call.at("dim0")}
    return [swap.get(call.dim, call.dim)]


def t(call: Call) -> list[int | None]:
    call.alone()
    return [1 - call.dim if call.x.dim() == 2 else call.dim]


def expand(call: Call) -> list[int | None]:
    call.alone()
    out = call.outputs[0]
    dim = call.dim + out.dim() - call.x.dim()
    if out.shape[dim] != call.x.shape[call.dim]:
        raise Mixes("samples are repeated")
    return [dim]


def repeat(call: Call) -> list[int | None]:
    call.alone()
    dim = call.dim + len(call["repeats"]) - call.x.dim()
    if call["repeats"][dim] != 1:
        raise Mixes("samples are repeated")
    return [dim]


def unsqueeze(call: Call) -> list[int | None]:
    call.alone()
    return [call.dim + (call.at("dim", call.x.dim() + 1) <= call.dim)]


def squeeze(call: Call) -> list[int | None]:
    call.alone()
    rank, dims = call.x.dim(), call["dim"]
    if dims is None:
        dims = range(rank)
    dims = {d % rank for d in ([dims] if isinstance(dims, int) else dims)}
    gone = [d for d in dims if d < call.dim and call.x.shape[d] == 1]
    return [call.dim - len(gone)]


def other_dim(call: Call) -> int:
    """The argument ``dim``, which must not be the samples'."""
    call.alone()
    dim = call.at("dim")
    if dim == call.dim:
        raise Mixes("it works along them")
    return dim


def along_other(call: Call) -> list[int | None]:
    other_dim(call)
    return every(call, call.dim)


def select(call: Call) -> list[int | None]:
    return every(call, call.dim - (other_dim(call) < call.dim))


def slice_(call: Call) -> list[int | None]:
    call.alone()
    if call.at("dim") == call.dim and not (
        call["start"] in (None, 0)
        and call["step"] == 1
        and (call["end"] is None or call["end"] >= _END)
    ):
        raise Mixes("it takes some of them")
    return [call.dim]


def joined(call: Call) -> int:
    """Dimension of the samples in all the tensors of a list."""
    tensors = call["tensors"]
    dims = {dim_of(t) for t in tensors} - {None}
    if len(dims) != 1:
        raise Mixes("samples lie along different dimensions")
    return dims.pop()


def cat(call: Call) -> list[int | None]:
    dim = joined(call)
    if call.at("dim", call.outputs[0].dim()) == dim:
        raise Mixes("it works along them")
    return [dim]


def stack(call: Call) -> list[int | None]:
    dim = joined(call)
    return [dim + (call.at("dim", call.outputs[0].dim()) <= dim)]


def index(call: Call) -> list[int | None]:
    x, indices = call["self"], call["indices"]
    given = [i for i, index in enumerate(indices) if index is not None]
    if mark_of(x) is None:
        # Rows of a table, looked up by ids.
        if given != [0]:
            raise Mixes("several indices hold them")
        return [dim_of(indices[0])]
    call.alone()
    dim = dim_of(x)
    if dim in given or given != list(range(given[0], given[-1] + 1)):
        raise Mixes("it works along them")
    if any(indices[i].dtype in (torch.bool, torch.uint8) for i in given):
        raise Mixes("a mask selects")
    if dim < given[0]:
        return [dim]
    rank = max(indices[i].dim() for i in given)
    return [dim - len(given) + rank]


def index_select(call: Call) -> list[int | None]:
    if mark_of(call["self"]) is None:
        return [call.at("dim", call["self"].dim())]
    return along_other(call)


def embedding(call: Call) -> list[int | None]:
    if mark_of(call["weight"]) is not None:
        raise Mixes("they are the table")
    return [dim_of(call["indices"])]
