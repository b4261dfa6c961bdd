"""What operations cost on the meta device, where nothing is computed: often far more than there is
to compute, because torch finds the shape of some results in Python.

Measured with torch 2.14 on one core of a server, in units of 0.1 ms, rounded up; an operation that
is not listed takes less than two.
"""

from __future__ import annotations

#: by name, without the underscore of the in-place form
_UNITS = {
    "upsample_bicubic2d": 300,
    "upsample_trilinear3d": 80,
    "upsample_bilinear2d": 50,
    "floor_divide": 25,
    "upsample_linear1d": 20,
    "hardswish": 11,
    "hardsigmoid": 10,
    "hardtanh": 8,
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "_safe_softmax"), 6),
    **dict.fromkeys(("elu", "mish", "col2im", "clamp", "clamp_min", "clamp_max"), 5),
    **dict.fromkeys(("gelu", "im2col", "log_sigmoid_forward", "_log_softmax"), 4),
    **dict.fromkeys(
        ("softplus", "linalg_vector_norm", "_prelu_kernel", "native_batch_norm", "leaky_relu",
         "addmm", "celu", "cumsum"),
        3,
    ),
    **dict.fromkeys(("relu", "roll", "eye"), 2),
    "sigmoid_": 3,
}  # fmt: skip


def effort(name: str, results: int) -> int:
    """Of one operation that gives so many tensors."""
    units = _UNITS.get(name) or _UNITS.get(name.removesuffix("_"), 1)
    return max(units, results)
