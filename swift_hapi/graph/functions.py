"""The fixed tables of functions and tensor methods a graph may call.

A file names an entry of these tables; nothing else can be called. Per entry we keep whether the
result may share memory with an argument (``fresh`` says it never does) and whether it writes
into its first argument.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from swift_hapi.protocol.errors import ModelInvalid

#: what ``getattr`` may read
ATTRIBUTES = frozenset({"shape", "ndim", "dtype", "device"})


@dataclass(frozen=True)
class Function:
    """A row of the table.

    :param inplace_at: position of an argument named ``inplace``, if the function has one
    """

    name: str
    call: Callable
    fresh: bool = False
    inplace: bool = False
    inplace_at: int | None = None

    def writes(self, args: tuple, kwargs: Mapping) -> bool:
        """Whether this call overwrites its first argument."""
        if self.inplace or kwargs.get("inplace") is True:
            return True
        at = self.inplace_at
        return at is not None and len(args) > at and args[at] is True


def _rows(calls: Mapping[str, Callable], **flags) -> list[Function]:
    return [Function(name, call, **flags) for name, call in calls.items()]


def _prefixed(prefix: str, module, names: str) -> dict[str, Callable]:
    return {prefix + name: getattr(module, name) for name in names.split()}


_TABLE = [
    Function("getattr", getattr),
    Function("operator.getitem", operator.getitem),
    *_rows(
        _prefixed(
            "operator.",
            operator,
            "add sub mul truediv floordiv mod neg pow matmul eq ne lt le gt ge invert and_ or_",
        ),
        fresh=True,
    ),
    *_rows(_prefixed("operator.", operator, "iadd isub imul itruediv"), inplace=True),
    *_rows(_prefixed("math.", math, "ceil floor sqrt"), fresh=True),
    # fresh results
    *_rows(
        _prefixed(
            "torch.",
            torch,
            "add sub mul div matmul bmm addmm addcmul cat concat stack conv1d conv2d conv3d "
            "sigmoid tanh exp log sqrt rsqrt abs neg pow square sin cos erf clamp relu softmax "
            "log_softmax mean sum var std amax amin max min maximum minimum where cumsum "
            "layer_norm group_norm arange zeros ones full zeros_like ones_like "
            "full_like linspace eye norm roll flip",
        ),
        fresh=True,
    ),
    *_rows(
        _prefixed(
            "torch.",
            torch,
            "flatten reshape permute transpose swapaxes movedim unsqueeze squeeze chunk split "
            "tensor_split unbind narrow index_select t einsum clone repeat_interleave meshgrid "
            "broadcast_to unflatten",
        )
    ),
    *_rows(
        _prefixed(
            "functional.",
            F,
            "linear conv1d conv2d conv3d conv_transpose2d layer_norm batch_norm group_norm "
            "gelu sigmoid tanh softmax log_softmax softplus softsign logsigmoid "
            "glu normalize avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
            "adaptive_avg_pool2d adaptive_avg_pool3d "
            "scaled_dot_product_attention local_response_norm prelu embedding rms_norm fold",
        ),
        fresh=True,
    ),
    *_rows(
        _prefixed(
            "functional.",
            F,
            "max_pool1d max_pool2d max_pool3d adaptive_max_pool2d pad interpolate pixel_shuffle "
            "pixel_unshuffle unfold channel_shuffle",
        )
    ),
    *[
        Function(f"functional.{name}", getattr(F, name), fresh=True, inplace_at=at)
        for name, at in {
            "relu": 1,
            "relu6": 1,
            "silu": 1,
            "mish": 1,
            "selu": 1,
            "hardswish": 1,
            "hardsigmoid": 1,
            "leaky_relu": 2,
            "elu": 2,
            "celu": 2,
            "hardtanh": 3,
        }.items()
    ],
    Function("functional.dropout", F.dropout, inplace_at=3),
]

_METHODS = [
    *_rows(
        _prefixed(
            "",
            torch.Tensor,
            "add sub mul div matmul bmm mean sum var std norm amax amin max min softmax "
            "log_softmax sigmoid tanh exp log sqrt rsqrt abs neg pow square sin cos cumsum clamp "
            "relu roll flip clone repeat dim size numel masked_fill eq ne lt le gt ge",
        ),
        fresh=True,
    ),
    *_rows(
        _prefixed(
            "",
            torch.Tensor,
            "flatten reshape view view_as reshape_as permute transpose swapaxes movedim "
            "contiguous expand expand_as unsqueeze squeeze chunk split tensor_split unbind "
            "narrow unflatten unfold t to float type_as index_select repeat_interleave",
        )
    ),
    *_rows(
        _prefixed(
            "",
            torch.Tensor,
            "add_ sub_ mul_ div_ clamp_ relu_ sigmoid_ tanh_ __iadd__ __isub__ __imul__",
        ),
        inplace=True,
    ),
]

FUNCTIONS: dict[str, Function] = {row.name: row for row in _TABLE}
METHODS: dict[str, Function] = {row.name: row for row in _METHODS}
_NAME_OF = {row.call: row.name for row in reversed(_TABLE)}


@functools.cache
def _torchvision() -> dict[str, Function]:
    """Functions that torchvision's Swin transformers call as a whole; torchvision is imported
    only when a graph or a traced model has need of them."""
    from torchvision.models import swin_transformer as swin

    rows = [
        Function("torchvision.shifted_window_attention", swin.shifted_window_attention, True),
        Function(
            "torchvision.relative_position_bias", swin._get_relative_position_bias, fresh=True
        ),
        Function("torchvision.patch_merging_pad", swin._patch_merging_pad),
    ]
    return {row.name: row for row in rows}


def function(name: str) -> Function | None:
    """The function of that name in the table, or None."""
    row = FUNCTIONS.get(name)
    if row is None and name.startswith("torchvision."):
        row = _torchvision().get(name)
    return row


def name_of(call: Callable) -> str | None:
    """The table's name of a function met while tracing, or None."""
    name = _NAME_OF.get(call)
    if name is None and getattr(call, "__module__", "").startswith("torchvision."):
        rows = _torchvision().values()
        name = next((row.name for row in rows if row.call is call), None)
    return name


def row_of(op: str, target: str) -> Function:
    """:raises ModelInvalid: no such function or method"""
    row = METHODS.get(target) if op == "method" else function(target)
    if row is None:
        raise ModelInvalid(f"unknown {op} '{target}'")
    return row
