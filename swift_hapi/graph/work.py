"""What operations cost where they are computed, in floating-point operations of a matrix product.

An element that is added, moved or looked up takes as long as hundreds of these: memory is slow,
and so is an exponential. Measured with torch 2.14 on one core of a server, on images of a million
pixels: 0.01 ns for an operation in a matrix product, 2 ns for an element of a sum, 3 to 4 ns for
one of an exponential or a tangent, 5 to 8 ns for one of an interpolation or a softmax, 18 ns for
one that is selected along the last dimension, 30 to 40 ns for one in a norm or a deviation.
"""

from __future__ import annotations

import functools
import math

import torch
from torch.utils.flop_counter import flop_registry

#: an element that is written, or of an argument if those are more
ELEMENT = 200
#: an element that a matrix product or convolution reads: few rows do not make up for the weights
READ = 20
#: integers have no fast matrix products
INTEGER = 20
#: convolutions of fewer channels than this in a group do not fill a vector
NARROW_CHANNELS, NARROW = 8, 10
TRANSPOSED = 4
#: an element that a window looks at
WINDOW = 200

#: by name, without the underscore of the in-place form
_ELEMENT = {
    **dict.fromkeys(
        (
            *("sin", "cos", "exp", "log", "tanh", "sigmoid", "erf", "pow", "gelu", "silu", "mish"),
            *("softplus", "elu", "celu", "selu", "log_sigmoid_forward", "native_layer_norm"),
            *("native_group_norm", "_fused_rms_norm", "native_batch_norm"),
            *("_native_batch_norm_legit", "im2col", "col2im", "pixel_shuffle"),
            *("pixel_unshuffle", "_to_copy", "index", "roll"),
        ),
        400,
    ),
    **dict.fromkeys(
        (
            *("where", "masked_fill", "max", "min", "remainder", "floor_divide", "div"),
            *("cumsum", "_softmax", "_log_softmax", "_safe_softmax"),
            *("upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_linear1d"),
            *("upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
            *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
        ),
        800,
    ),
    "index_select": 2_000,
    **dict.fromkeys(("linalg_vector_norm", "norm", "std", "var", "var_mean", "prod"), 4_000),
}
#: results that are as much work per element as the window they look at
_WINDOWS = ("max_pool", "avg_pool", "adaptive_", "_adaptive_")


@functools.cache
def _is_view(op) -> bool:
    """Whether it gives another look at the same memory."""
    return any(
        out.alias_info is not None and not out.alias_info.is_write for out in op._schema.returns
    )


def work(op, args: tuple, kwargs: dict, out: object, outputs: tuple) -> float:
    """
    :param out: what ``op`` gave; ``outputs`` the tensors in it
    """
    if _is_view(op):
        return 0.0
    written = sum(tensor.numel() for tensor in outputs)
    read = sum(arg.numel() for arg in args if torch.is_tensor(arg))
    name = op.overloadpacket.__name__
    count = flop_registry.get(op.overloadpacket)
    if count is not None:
        products = count(*args, **kwargs, out_val=out)
        if outputs and not outputs[0].is_floating_point():
            products *= INTEGER
        if name == "convolution":
            weight, transposed = args[1], args[6]
            narrow = NARROW if weight.shape[1] < NARROW_CHANNELS else 1
            products *= max(narrow, TRANSPOSED if transposed else 1)
        return products + written * ELEMENT + read * READ
    if name.startswith(_WINDOWS):
        return written * _window(name, args, outputs) * WINDOW
    # Lists of tensors are written as a whole.
    each = _ELEMENT.get(name) or _ELEMENT.get(name.removesuffix("_"), ELEMENT)
    return max(written, read) * each


def _window(name: str, args: tuple, outputs: tuple) -> float:
    """Elements that one element of a pool's result looks at."""
    if "adaptive" in name:
        return max(1.0, args[0].numel() / max(1, outputs[0].numel())) * 4
    window = args[1]
    if isinstance(window, int):
        return max(1, window) ** 3
    dims = 3 if "3d" in name else 2
    return max(1, math.prod(window) if len(window) > 1 else window[0] ** dims)
