"""Operations and modules with numbers that have no business in a native kernel, one by one."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.building import X

#: nodes ``n0``, ``n1``, ... of a case, each (operation, target, arguments, keywords)
Steps = list[tuple[str, str, tuple, dict]]

KINDS = ("int64", "int32", "uint8", "bool")


def _f(target: str, *args, **kwargs):
    return "function", target, args, kwargs


def _m(target: str, *args, **kwargs):
    return "method", target, args, kwargs


def _n(at: int) -> dict:
    return {"ref": f"n{at}"}


def _t(*items) -> dict:
    return {"tuple": list(items)}


_ALL = {"slice": [None, None, None]}
_NONE = _f("operator.getitem", X, _t(_ALL, _ALL, {"slice": [0, 0, None]}))


def _kind(name: str) -> dict:
    return {"dtype": {"dtype": name}}


def _int_min() -> Steps:
    """``n3`` is -2^63 everywhere, ``n4`` -1, ``n5`` 0: only known when the network runs."""
    return [
        _m("mul", X, 0),
        _m("to", _n(0), {"dtype": "int64"}),
        _m("add", _n(1), -(2**62)),
        _m("mul", _n(2), 2),
        _m("sub", _n(1), 1),
        _m("mul", _n(1), 1),
    ]


def convolutions(v) -> Iterator[tuple[str, Steps]]:
    for side in (1, 3):
        w = _f("torch.ones", _t(3, 3, side, side))
        for key in ("stride", "padding", "dilation", "groups", "output_padding"):
            for name in ("conv2d", "conv_transpose2d"):
                if key != "output_padding" or name != "conv2d":
                    step = _f(f"functional.{name}", X, _n(0), **{key: v})
                    yield f"{name} {side} {key}", [w, step]
        conv = "functional.conv2d"
        yield f"conv2d {side} padding dilation", [w, _f(conv, X, _n(0), None, 1, v, v)]
        yield f"conv2d {side} all", [w, _f(conv, X, _n(0), None, v, v, v)]
        yield f"conv2d {side} stride padding", [w, _f(conv, X, _n(0), None, v, v)]
        yield f"conv2d {side} same", [w, _f(conv, X, _n(0), None, 1, "same", v)]
        yield f"conv2d {side} one side", [w, _f(conv, X, _n(0), None, 1, _t(v, 1), _t(v, 1))]
        yield (f"conv2d {side} depthwise",
               [_f("torch.ones", _t(3, 1, side, side)), _f(conv, X, _n(0), None, 1, v, v, 3)])
        w3 = _f("torch.ones", _t(1, 1, side, side, side))
        yield (f"conv3d {side}", [w3, _m("unsqueeze", X, 1),
                                  _f("functional.conv3d", _n(1), _n(0), None, 1, v, v)])
        w1 = _f("torch.ones", _t(3, 3, side))
        yield (f"conv1d {side}", [w1, _m("flatten", X, 2),
                                  _f("functional.conv1d", _n(1), _n(0), None, 1, v, v)])


def windows(v) -> Iterator[tuple[str, Steps]]:
    f = "functional."
    for pool in ("max_pool2d", "avg_pool2d"):
        for at, args in enumerate(((v,), (2, v), (2, 1, v), (v, v, v), (_t(v, 1),))):
            yield f"{pool} {at}", [_f(f + pool, X, *args)]
    yield "max_pool2d dilation", [_f(f + "max_pool2d", X, 2, 1, 0, v)]
    yield "max_pool2d padding dilation", [_f(f + "max_pool2d", X, 2, 1, 1, v)]
    for kind in ("float32", "int64"):
        yield (f"avg_pool2d divisor {kind}",
               [_m("to", X, {"dtype": kind}),
                _f(f + "avg_pool2d", _n(0), 2, 1, 0, False, True, v)])
    for name in ("max_pool1d", "avg_pool1d", "adaptive_avg_pool1d"):
        yield name, [_m("flatten", X, 2), _f(f + name, _n(0), v)]
    for name in ("max_pool3d", "avg_pool3d", "adaptive_avg_pool3d"):
        yield name, [_f(f + name, X, v)]
    for name in ("adaptive_avg_pool2d", "adaptive_max_pool2d", "pixel_shuffle", "pixel_unshuffle",
                 "channel_shuffle", "local_response_norm", "group_norm", "unfold", "glu",
                 "interpolate", "dropout"):  # fmt: skip
        yield name, [_f(f + name, X, v)]
    for at, args in enumerate(((2, v), (2, 1, v), (2, 1, 0, v), (2, v, v), (v, v, v, v))):
        yield f"unfold {at}", [_f(f + "unfold", X, *args)]
        yield f"fold {at}", [_f(f + "unfold", X, 2), _f(f + "fold", _n(0), _t(8, 8), *args)]
    yield "fold output", [_f(f + "unfold", X, 2), _f(f + "fold", _n(0), _t(v, v), 2)]
    for mode in ("constant", "reflect", "replicate", "circular"):
        for pads in ((v, 1), (v, -v), (v, v, v, v), (0, 0, v, -v)):
            yield f"pad {mode} {len(pads)} {pads[1] == 1}", [_f(f + "pad", X, _t(*pads), mode)]
    for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
        yield f"interpolate {mode}", [_f(f + "interpolate", X, _t(v, 1), None, mode)]
        yield f"interpolate scale {mode}", [_f(f + "interpolate", X, None, v, mode)]


def shapes(v) -> Iterator[tuple[str, Steps]]:
    item = _f("operator.getitem", _n(0), 0)
    for name in ("chunk", "split", "tensor_split"):
        yield name, [_f(f"torch.{name}", X, v, 1), item]
        yield f"{name} dim", [_f(f"torch.{name}", X, 2, v), item]
    yield "split sizes", [_m("split", X, [v, 1], 1), item]
    yield "tensor_split at", [_m("tensor_split", X, _t(v, 1), 1), item]
    one: dict[str, tuple] = {
        "unfold": (2, v, 1), "unfold ": (2, 2, v), "unfold  ": (v, 2, 2), "roll": (v, 2),
        "roll ": (1, v), "roll  ": (_t(v, v), _t(2, 3)), "narrow": (1, v, 1), "narrow ": (1, 1, v),
        "repeat_interleave": (v, 1), "repeat_interleave ": (1, v), "flip": (_t(v),), "pow": (v,),
        "movedim": (1, v), "cumsum": (v,), "softmax": (v,), "sum": (v,), "norm": (v, 1),
        "norm ": (2, v), "std": (v,), "unsqueeze": (v,), "squeeze": (v,), "flatten": (1, v),
        "transpose": (1, v), "permute": (0, v, 1, 2), "reshape": (-1, v), "reshape ": (-1, v, v),
        "expand": (-1, v, 8, 8), "repeat": (1, v, 1, 1), "repeat ": (1, v, v, v),
        "unflatten": (1, _t(v, -1)), "unflatten ": (1, _t(v, v, 3)), "clamp": (v, -1),
        "size": (v,), "view": (-1, 3, v),
    }  # fmt: skip
    for name, args in one.items():
        yield f"method {name}", [_m(name.strip(), X, *args)]
        yield f"empty {name}", [_NONE, _m(name.strip(), _n(0), *args)]
    for key in ("correction", "unbiased"):
        yield f"var {key}", [_m("var", X, _t(1), **{key: v})]
    yield "slice step", [_f("operator.getitem", X, _t(_ALL, {"slice": [None, None, v]}))]
    yield "slice start", [_f("operator.getitem", X, _t(_ALL, {"slice": [v, None, None]}))]
    yield "item", [_f("operator.getitem", X, _t(_ALL, v))]
    yield "items", [_f("operator.getitem", X, _t(_ALL, [v]))]
    for shape in ((v,), (v, v), (8, v, 4)):
        yield f"layer_norm {len(shape)}", [_f("functional.layer_norm", X, _t(*shape))]
        for name in ("zeros", "ones"):
            yield f"{name} {len(shape)}", [_f(f"torch.{name}", _t(*shape)), _m("add", X, _n(0))]
        yield f"full {len(shape)}", [_f("torch.full", _t(*shape), 1.0), _m("add", X, _n(0))]
    for kind in (None, "int64", "int32", "uint8", "float32"):
        words = {} if kind is None else _kind(kind)
        for at, args in enumerate(((0, 8, v), (v, -v, -1), (v, v, 1), (-v, v, v), (v,), (0, 8, 1),
                                   (v, 2**62, 2**62), (2**62, -(2**62), v))):  # fmt: skip
            yield f"arange {kind} {at}", [_f("torch.arange", *args, **words), _m("add", X, _n(0))]
        for at, args in enumerate(((0, 1, v), (v, -v, 8), (v, v, 1), (-v, v, 0), (v, 0, 2))):
            yield (f"linspace {kind} {at}",
                   [_f("torch.linspace", *args, **words), _m("add", X, _n(0))])
        for args in ((8, v), (v, 8), (v,)):
            yield f"eye {kind} {args}", [_f("torch.eye", *args, **words),
                                         _m("float", _n(0)), _m("matmul", X, _n(1))]
    for dim in (0, 1, v):
        yield (f"meshgrid {dim}", [_f("torch.arange", 3),
                                   _f("torch.repeat_interleave", X, _n(0), dim, output_size=v)])
        yield (f"interleave {dim}",
               [_f("torch.full", _t(4), v, **_kind("int64")), _m("repeat", X, 1, 2, 1, 1),
                _m("narrow", _n(1), 1, 0, 4),
                _f("torch.repeat_interleave", _n(2), _n(0), dim, output_size=(4 * v) % 2**64)])


def integers(v) -> Iterator[tuple[str, Steps]]:
    ids = [_m("mul", X, 0), _m("to", _n(0), {"dtype": "int64"}), _m("add", _n(1), v)]
    table = _f("torch.ones", _t(4, 8))
    yield "embedding", [*ids, table, _f("functional.embedding", _n(2), _n(3))]
    yield "embedding padding", [*ids, table, _f("functional.embedding", _n(1), _n(3), v)]
    yield "embedding scale", [*ids, table,
                              _f("functional.embedding", _n(1), _n(3), None, None, v, True, True)]
    yield "index", [*ids, table, _f("operator.getitem", _n(3), _n(2))]
    yield "index_select", [_f("torch.full", _t(2), v, **_kind("int64")),
                           _f("torch.index_select", X, 1, _n(0))]
    for kind in KINDS:
        given = _m("to", X, {"dtype": kind})
        for name in ("mod", "floordiv", "pow", "truediv"):
            yield f"{name} {kind}", [given, _f(f"operator.{name}", _n(0), v)]
            yield f"r{name} {kind}", [given, _f(f"operator.{name}", v, _n(0))]
        for mode in ("trunc", "floor"):
            yield (f"div {mode} {kind}",
                   [given, _f("torch.div", _n(0), v, rounding_mode=mode)])
            yield (f"div_ {mode} {kind}", [given, _m("div_", _n(0), v, rounding_mode=mode)])
        for name in ("sum", "cumsum", "mean", "softmax"):
            yield f"{name} {kind}", [given, _m(name, _n(0), 1, **_kind(kind))]


def divided() -> Iterator[tuple[str, Steps]]:
    """Integer divisions whose operands are known only when the network runs."""
    low = _int_min()
    for divisor in (3, 4, 5):
        for kind in KINDS:
            pair = [*low, _m("to", _n(3), {"dtype": kind}), _m("to", _n(divisor), {"dtype": kind})]
            for name in ("mod", "floordiv"):
                yield f"{name} {divisor} {kind}", [*pair, _f(f"operator.{name}", _n(6), _n(7))]
            for mode in ("trunc", "floor"):
                words = {"rounding_mode": mode}
                for step in (_f("torch.div", _n(6), _n(7), **words),
                             _m("div", _n(6), _n(7), **words), _m("div_", _n(6), _n(7), **words)):
                    yield f"{step[0]} {step[1]} {mode} {divisor} {kind}", [*pair, step]
            yield f"pow {divisor} {kind}", [*pair, _m("pow", _n(6), _n(7))]
            yield f"rpow {divisor} {kind}", [*pair, _m("pow", _n(7), _n(6))]
        yield (f"div constants {divisor}",
               [_f("torch.full", _t(8), -(2**62), **_kind("int64")), _m("mul", _n(0), 2),
                _f("torch.full", _t(8), -1, **_kind("int64")),
                _f("torch.div", _n(1), _n(2), rounding_mode="trunc"), _m("add", X, _n(3))])
    for name in ("abs", "neg", "square", "relu", "sign"):
        yield f"{name} of the least", [*low, _m(name, _n(3))]
    for name in ("avg_pool2d", "max_pool2d", "adaptive_avg_pool2d", "interpolate", "unfold"):
        yield f"{name} of the least", [*low, _f(f"functional.{name}", _n(3), 2)]
    for divisor in (1, -1, 2, -2):
        yield (f"avg_pool of the least {divisor}",
               [*low, _f("functional.avg_pool2d", _n(3), 1, 1, 0, False, True, divisor)])
    for name in ("sum", "cumsum", "amax", "softmax", "mean"):
        yield f"{name} of the least", [*low, _m(name, _n(3), 1)]


def empty() -> Iterator[tuple[str, Steps]]:
    for name in ("softmax", "cumsum", "amax", "sum", "std", "norm", "mean", "log_softmax"):
        for dim in (1, 2, 3):
            yield f"{name} of nothing {dim}", [_NONE, _m(name, _n(0), dim)]
    for name in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d",
                 "unfold", "interpolate", "pixel_unshuffle", "group_norm", "glu", "normalize",
                 "local_response_norm", "channel_shuffle"):  # fmt: skip
        yield f"{name} of nothing", [_NONE, _f(f"functional.{name}", _n(0), 1)]
    for name in ("conv2d", "conv_transpose2d"):
        for shape in ((3, 3, 1, 1), (0, 3, 1, 1), (3, 0, 1, 1), (3, 3, 0, 0), (3, 3, 0, 1)):
            w = _f("torch.ones", _t(*shape))
            yield f"{name} of nothing {shape}", [_NONE, w, _f(f"functional.{name}", _n(0), _n(1))]
            yield f"{name} by nothing {shape}", [_NONE, w, _f(f"functional.{name}", X, _n(1))]
    attention = "functional.scaled_dot_product_attention"
    none = _f("operator.getitem", X, _t(_ALL, {"slice": [0, 0, None]}))
    for words in ({}, {"is_causal": True}, {"enable_gqa": True}, {"scale": 0.0}):
        for q, k in ((_n(0), _n(0)), (X, _n(0)), (_n(0), X), (_n(1), X), (X, _n(1))):
            yield f"attention {words} {q} {k}", [_NONE, none, _f(attention, q, k, k, **words)]
    yield "attention mask", [_m("gt", X, 5), _f(attention, X, X, X, _n(0))]


def floats(v) -> Iterator[tuple[str, Steps]]:
    f = "functional."
    for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
        for words in ({}, {"recompute_scale_factor": True}, {"antialias": True}):
            yield (f"scale {mode} {words}",
                   [_f(f + "interpolate", X, None, v, mode, **words)])
        yield f"scale pair {mode}", [_f(f + "interpolate", X, None, _t(v, 1.0), mode)]
    for name in ("leaky_relu", "elu", "celu", "softplus", "dropout"):
        yield name, [_f(f + name, X, v)]
    yield "norm", [_m("norm", X, v, _t(2, 3))]
    yield "normalize", [_f(f + "normalize", X, v, 1)]
    yield "normalize eps", [_f(f + "normalize", X, 2.0, 1, v)]
    yield "layer_norm eps", [_f(f + "layer_norm", X, _t(8), None, None, v)]
    yield "group_norm eps", [_f(f + "group_norm", X, 3, None, None, v)]
    yield "rms_norm eps", [_f(f + "rms_norm", X, _t(8), None, v)]
    yield "attention scale", [_f(f + "scaled_dot_product_attention", X, X, X, scale=v)]
    yield "response", [_f(f + "local_response_norm", X, 3, v, v, v)]
    for name in ("add", "mul", "div", "pow", "clamp"):
        yield f"method {name}", [_m(name, X, v)]
    for mode in ("trunc", "floor"):
        yield f"div {mode}", [_f("torch.div", X, v, rounding_mode=mode)]
    yield "floordiv", [_f("operator.floordiv", X, v)]
    yield "mod", [_f("operator.mod", X, v)]
    for kind in KINDS:
        yield f"to {kind}", [_m("mul", X, v), _m("to", _n(0), {"dtype": kind})]
        yield f"full {kind}", [_f("torch.full", _t(8), v, **_kind(kind)), _m("add", X, _n(0))]
        yield f"arange {kind}", [_f("torch.arange", 0, 8, v, **_kind(kind)), _m("add", X, _n(0))]
        yield (f"linspace {kind}",
               [_f("torch.linspace", v, 8, 8, **_kind(kind)), _m("add", X, _n(0))])


def modules(v) -> Iterator[tuple[str, dict]]:
    """(name, module)"""
    base = {"kernel_size": 2, "stride": 1, "padding": 0, "dilation": 1}
    pools = {
        "MaxPool2d": base | {"return_indices": False, "ceil_mode": True},
        "AvgPool2d": {key: base[key] for key in ("kernel_size", "stride", "padding")}
        | {"ceil_mode": True, "count_include_pad": False, "divisor_override": None},
        "Unfold": base,
    }
    pools["MaxPool2dSame"], pools["AvgPool2dSame"] = pools["MaxPool2d"], pools["AvgPool2d"]
    for kind, config in pools.items():
        for key in ("kernel_size", "stride", "padding", "dilation", "divisor_override"):
            if key in config:
                yield f"{kind} {key}", {"type": kind, "config": config | {key: v}}
        every = {key: v for key in base if key in config}
        yield f"{kind} all", {"type": kind, "config": config | every}
    simple = {
        "PixelShuffle": "upscale_factor", "PixelUnshuffle": "downscale_factor",
        "ChannelShuffle": "groups", "AdaptiveAvgPool2d": "output_size",
        "AdaptiveMaxPool2d": "output_size", "AdaptiveAvgPool3d": "output_size",
        "ZeroPad2d": "padding", "ReflectionPad2d": "padding", "ReplicationPad2d": "padding",
        "GLU": "dim", "Softmax": "dim",
    }  # fmt: skip
    for kind, key in simple.items():
        yield kind, {"type": kind, "config": {key: v}}
    yield "LocalResponseNorm", {"type": "LocalResponseNorm",
                                "config": {"size": v, "alpha": 1.0, "beta": 1.0, "k": 1.0}}
    for groups, channels in ((v, 3), (v, v), (3, v)):
        yield f"GroupNorm {groups == v}{channels == v}", {
            "type": "GroupNorm", "config": {"num_groups": groups, "num_channels": channels,
                                            "eps": 0.0, "affine": False}}  # fmt: skip
    yield "LayerNorm", {"type": "LayerNorm", "config": {
        "normalized_shape": v, "eps": 0.0, "elementwise_affine": False, "bias": False}}
    for key in ("size", "scale_factor"):
        for mode in ("nearest", "bilinear", "bicubic"):
            yield f"Upsample {key} {mode}", {"type": "Upsample", "config": {
                "size": None, "scale_factor": None, "mode": mode, "align_corners": None,
                key: v}}  # fmt: skip
