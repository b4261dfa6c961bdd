"""Which rule holds for which operation; what is in no table may mix samples."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from swift_hapi.graph import isolation_moves as moves
from swift_hapi.graph import isolation_sums as sums
from swift_hapi.graph.isolation_call import Call, Mixes, Place

#: from a call to where the samples lie in each output: a dimension, or a place; None: nowhere
Rule = Callable[[Call], "list[int | Place | None]"]


def _for(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


_RULES: dict[str, Rule] = {
    **_for(
        "clone contiguous detach alias lift_fresh _to_copy positive dropout native_dropout "
        "_conj hardswish hardsigmoid hardtanh silu mish gelu elu celu selu leaky_relu softplus "
        "log_sigmoid_forward relu6 clamp clamp_min clamp_max rsub hardswish_ hardsigmoid_ "
        "hardtanh_ silu_ mish_ elu_ celu_ selu_ leaky_relu_ relu6_ nan_to_num "
        "fill_ zero_ as_strided_ empty_like zeros_like ones_like full_like",
        sums.same,
    ),
    **_for("_prelu_kernel copy_ masked_fill masked_fill_ addcmul", sums.pointwise),
    **_for("new_empty new_zeros new_ones new_full scalar_tensor", sums.nothing),
    **_for("view _unsafe_view _reshape_alias reshape", moves.view),
    "permute": moves.permute,
    "transpose": moves.transpose,
    "t": moves.t,
    "expand": moves.expand,
    "repeat": moves.repeat,
    "unsqueeze": moves.unsqueeze,
    "squeeze": moves.squeeze,
    "slice": moves.slice_,
    **_for("select unbind", moves.select),
    **_for(
        "split split_with_sizes chunk tensor_split cumsum _softmax _log_softmax _safe_softmax "
        "softmax log_softmax glu narrow",
        moves.along_other,
    ),
    "cat": moves.cat,
    "stack": moves.stack,
    **_for("index _unsafe_index", moves.index),
    "index_select": moves.index_select,
    "embedding": moves.embedding,
    **_for("roll flip", sums.dims_other),
    **_for(
        "sum mean amax amin var std norm linalg_vector_norm prod max min any all var_mean "
        "logsumexp",
        sums.reduce,
    ),
    **_for("max_pool1d avg_pool1d adaptive_avg_pool1d upsample_nearest1d "
                    "upsample_linear1d reflection_pad1d replication_pad1d", sums.last(1)),
    **_for(
        "max_pool2d max_pool2d_with_indices avg_pool2d adaptive_avg_pool2d _adaptive_avg_pool2d "
        "adaptive_max_pool2d upsample_nearest2d upsample_bilinear2d upsample_bicubic2d "
        "_upsample_nearest_exact2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
        "reflection_pad2d replication_pad2d",
        sums.last(2),
    ),
    **_for(
        "pixel_shuffle pixel_unshuffle max_pool3d max_pool3d_with_indices avg_pool3d "
        "adaptive_avg_pool3d _adaptive_avg_pool3d upsample_trilinear3d upsample_nearest3d",
        sums.last(3),
    ),
    **_for("channel_shuffle native_channel_shuffle im2col", sums.first_of(4)),
    "col2im": sums.first_of(3),
    "unfold": sums.unfold,
    "convolution": sums.convolution,
    "constant_pad_nd": sums.pad,
    **_for("mm bmm", sums.mm),
    **_for("addmm baddbmm", sums.addmm),
    **_for("native_layer_norm _fused_rms_norm", sums.layer_norm),
    "native_group_norm": sums.group_norm,
    "native_batch_norm": sums.batch_norm,
    "_native_batch_norm_legit": sums.batch_norm,
    **_for(
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math "
        "_scaled_dot_product_efficient_attention",
        sums.attention,
    ),
}  # fmt: skip


_POINTWISE = torch.Tag.pointwise


@functools.cache
def rule_of(op, name: str) -> Rule:
    """:raises Mixes: there is none"""
    rule = _RULES.get(name)
    if rule is None and _POINTWISE in op.tags:
        return sums.pointwise
    if rule is None:
        raise Mixes("it is not known to keep them apart")
    return rule
