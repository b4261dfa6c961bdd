"""Features into the types they travel as, and back: :mod:`swift_hapi.protocol.wire`.

With torch, whose conversions are ten times as fast as numpy's and give the same bits.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from swift_hapi.protocol.wire import ARRAYS, Packed, ranges_shape

_STEPS, _LOWEST = 255, -128
#: values converted at a time: no more than torch does without its team of threads, which the
#: network needs
_SOME = 32768


def pack(rows: np.ndarray, dtype: str) -> tuple[Packed, list[int]]:
    """:param rows: float32 [n, ...], contiguous
    :param dtype: ``float32``, ``float16`` or ``int8``

    :returns: and the places of rows that hold what ``dtype`` cannot: beyond 65504, and for int8
        infinities, what is no number, and ranges beyond float32; their packed values mean nothing
    """
    if dtype == "float32":
        return Packed(rows), []
    out = np.empty(rows.shape, dtype=ARRAYS[dtype])
    lead = ranges_shape(rows.shape)
    scale = zero = None
    if dtype == "int8":
        scale, zero = np.zeros(lead, np.float32), np.zeros(lead, np.float32)
    fine = np.ones(math.prod(lead), dtype=bool)
    if rows.size:
        values, packed = rows.reshape(len(fine), -1), out.reshape(len(fine), -1)
        some = max(1, _SOME // values.shape[1])
        for start in range(0, len(fine), some):
            part = slice(start, start + some)
            x, target = torch.from_numpy(values[part]), torch.from_numpy(packed[part])
            if dtype == "float16":
                found = _halve(x, target)
            else:
                ranges = (torch.from_numpy(each.reshape(-1)[part]) for each in (scale, zero))
                found = _quantise(x, target, *ranges)
            fine[part] = found.numpy()
        fine = fine.reshape(len(rows), -1).all(axis=1)
    return Packed(out, scale, zero), np.flatnonzero(~fine).tolist()


def _halve(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """[k, m] to ``out``; which of the k fit."""
    out.copy_(x)
    return ~out.isinf().any(dim=1)


def _quantise(
    x: torch.Tensor, out: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor
) -> torch.Tensor:
    low, high = torch.aminmax(x, dim=1)
    torch.div(high - low, _STEPS, out=scale)
    torch.sub(low, scale, alpha=_LOWEST, out=zero)
    steps = x - low[:, None]
    # A range of one value has no steps: all of it is the lowest.
    steps /= torch.where(scale > 0, scale, 1.0)[:, None]
    # The division may end a hair above the last step.
    out.copy_(steps.round_().clamp_(max=_STEPS).add_(_LOWEST))
    return scale.isfinite() & zero.isfinite()


def unpack(packed: Packed, at: int | slice = slice(None)) -> np.ndarray:
    """float32 rows at ``at``; of float32 the rows themselves."""
    rows = packed.rows[at]
    if rows.dtype == np.float32:
        return rows
    found = torch.from_numpy(rows).float()
    if packed.scale is not None:
        for step, ranges in ((found.mul_, packed.scale[at]), (found.add_, packed.zero[at])):
            each = torch.from_numpy(np.asarray(ranges))
            step(each.reshape(*each.shape, *(1,) * (found.dim() - each.dim())))
    return found.numpy()
