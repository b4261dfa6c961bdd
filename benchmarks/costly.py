"""Extractor files whose examination costs far more than it costs to write them."""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.building import X, call, chain, document, file, pack

#: operations that leave an image [n, 3, 8, 8] as it is, some of them slow on the meta device
STEPS: dict[str, tuple] = {
    "conv": ("function", "functional.conv2d", "x", {"ref": "w"}, None, 1, 1),
    "attention": ("function", "functional.scaled_dot_product_attention", "x", "x", "x"),
    "layer_norm": ("function", "functional.layer_norm", "x", {"tuple": [8]}),
    "group_norm": ("function", "functional.group_norm", "x", 3),
    "interpolate": ("function", "functional.interpolate", "x", None, 1, "bicubic"),
    "resize": ("function", "functional.interpolate", "x", {"tuple": [8, 8]}, None, "bilinear"),
    "area": ("function", "functional.interpolate", "x", {"tuple": [8, 8]}, None, "area"),
    "einsum": ("function", "torch.einsum", "nchw,nchw->nchw", "x", "x"),
    "pool": ("function", "functional.max_pool2d", "x", 3, 1, 1),
    "adaptive": ("function", "functional.adaptive_avg_pool2d", "x", 8),
    "index": ("function", "operator.getitem", "x",
              {"tuple": [{"slice": [None, None, None]}, [0, 1, 2]]}),
    "slices": ("function", "operator.getitem", "x",
               {"tuple": [{"slice": [None, None, None]}] * 4}),
    "circular": ("function", "functional.pad", "x", {"tuple": [0, 0, 0, 0]}, "circular"),
    "normalize": ("function", "functional.normalize", "x", 2.0, 1),
    "response": ("function", "functional.local_response_norm", "x", 2),
    "softmax": ("method", "softmax", "x", 1),
    "std": ("method", "std", "x", {"tuple": [1]}, True),
    "roll": ("function", "torch.roll", "x", 1, 2),
    "shape": ("function", "getattr", "x", "shape"),
    "matmul": ("function", "torch.matmul", "x", "x"),
    "expand": ("method", "expand", "x", -1, 3, 8, 8),
    "repeat": ("method", "repeat", "x", 1, 1, 1, 1),
    "float": ("method", "float", "x"),
}  # fmt: skip


def steps(rng: random.Random) -> bytes:
    """A long chain of one operation."""
    return chain_of(rng.choice(list(STEPS)), rng.choice((900, 4_900)))


def chain_of(kind: str, count: int) -> bytes:
    op, target, *args = STEPS[kind]
    nodes, last = [call("w", "function", "torch.ones", {"tuple": [3, 3, 3, 3]})], X
    for i in range(count):
        nodes.append(call(f"n{i}", op, target, *[last if arg == "x" else arg for arg in args]))
        last = X if kind == "shape" else {"ref": f"n{i}"}
    nodes.append(call("end", "method", "relu", last))
    return file(nodes, "end")


def kept(rng: random.Random) -> bytes:
    """Everything is needed until the end."""
    return keep(rng.choice((200, 4_900)), rng.random() < 0.5)


def keep(count: int, same: bool) -> bytes:
    nodes, last = [], "input"
    for i in range(count):
        nodes.append(call(f"n{i}", "method", "sigmoid", X if same else {"ref": last}))
        last = f"n{i}"
    nodes.append(call("end", "function", "torch.cat", [{"ref": f"n{i}"} for i in range(count)], 1))
    return file(nodes, "end")


def lists(rng: random.Random) -> bytes:
    """Long lists of tensors, handed on again and again."""
    kind = rng.choice(("cat", "stack", "slice", "meshgrid", "item", "nested"))
    return hand_on(kind, rng.choice((64, 4_000)), rng.choice((50, 4_900)))


def hand_on(kind: str, length: int, count: int) -> bytes:
    nodes = [
        call("f", "method", "flatten", X, 1),
        call("w", "method", "repeat", {"ref": "f"}, 1, length // 192 + 1),
        call("u", "method", "unbind", {"ref": "w"}, 1),
    ]
    last = {"ref": "u"}
    for i in range(count):
        if kind == "slice":
            every = {"slice": [None, None, None]}
            nodes.append(call(f"n{i}", "function", "operator.getitem", last, every))
            last = {"ref": f"n{i}"}
        elif kind == "item":
            nodes.append(call(f"n{i}", "function", "operator.getitem", last, i % length))
        elif kind == "meshgrid":
            nodes.append(call(f"n{i}", "function", "torch.meshgrid", last))
        elif kind == "nested":
            nodes.append(call(f"n{i}", "function", "torch.stack", [last, last], 0))
        else:
            nodes.append(call(f"n{i}", "function", f"torch.{kind}", last, int(kind == "stack")))
    nodes.append(call("end", "method", "relu", {"ref": "f"}))
    return file(nodes, "end")


def apart(rng: random.Random) -> bytes:
    """A long tensor in millions of pieces, asked for in all ways that there are."""
    target = rng.choice(("unbind", "split", "chunk", "tensor_split"))
    op = rng.choice(("function", "method"))
    length = rng.choice((100, 4096, 2**20, 2**26))
    args, kwargs = [{"ref": "w"}], {}
    if rng.random() < 0.3:
        kwargs[rng.choice(("input", "self", "tensor", "x"))] = args.pop()
    if target != "unbind":
        how = rng.choice((1, 2, length, length // 2, -1, [1] * min(length, 3000), {"tuple": [1]}))
        if rng.random() < 0.5 and args:
            args.append(how)
        else:
            kwargs[rng.choice(("split_size", "split_size_or_sections", "chunks", "sections",
                               "indices", "indices_or_sections"))] = how  # fmt: skip
    if rng.random() < 0.6:
        kwargs[rng.choice(("dim", "dim", "axis"))] = rng.choice((0, 1, -1, -2))
    shape = rng.choice(([length], [length, 1], [1, length], [2, length]))
    nodes = [
        call("w", "function", "torch.zeros", {"tuple": shape}),
        call("u", op, f"torch.{target}" if op == "function" else target, *args, **kwargs),
        call("a", "function", "operator.getitem", {"ref": "u"}, 0),
        call("s", "method", "sum", {"ref": "a"}),
        call("end", "function", "operator.add", X, {"ref": "s"}),
    ]
    return file(nodes, "end")


def ranks(rng: random.Random) -> bytes:
    """Dimension upon dimension."""
    return chain(rng.choice((100, 4_900)), "method", "unsqueeze", rng.choice((1, -1)))


def encoders(rng: random.Random) -> bytes:
    """Thousands of the modules that take longest to make."""
    return encode(rng.choice((10, 300, 800, 4_000)), rng.random() < 0.5)


def encode(count: int, layers: bool) -> bytes:
    config = {"d_model": 2, "nhead": 1, "dim_feedforward": 1, "activation": "relu",
              "layer_norm_eps": 1e-5, "batch_first": True, "norm_first": False, "bias": True}
    parts = {"self_attn.in_proj_weight": [6, 2], "self_attn.in_proj_bias": [6],
             "self_attn.out_proj.weight": [2, 2], "self_attn.out_proj.bias": [2],
             "linear1.weight": [1, 2], "linear1.bias": [1],
             "linear2.weight": [2, 1], "linear2.bias": [2],
             "norm1.weight": [2], "norm1.bias": [2], "norm2.weight": [2], "norm2.bias": [2]}
    kind = "TransformerEncoderLayer"
    if not layers:
        kind = "MultiheadAttention"
        config = {"embed_dim": 2, "num_heads": 1, "bias": True, "add_bias_kv": False,
                  "add_zero_attn": False, "kdim": 2, "vdim": 2, "batch_first": True}
        parts = {key.removeprefix("self_attn."): shape for key, shape in parts.items()
                 if key.startswith("self_attn.")}  # fmt: skip
    nodes, last, ties, header, at = [], X, {}, {}, 0
    for key, shape in parts.items():
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[f"m0.{key}"] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    for i in range(count):
        ties |= {f"m{i}.{key}": f"m0.{key}" for key in parts} if i else {}
        nodes.append(call(f"n{i}", "module", f"m{i}", *[last] * (1 if layers else 3)))
        if not layers:
            nodes.append(call(f"o{i}", "function", "operator.getitem", {"ref": f"n{i}"}, 0))
        last = {"ref": f"n{i}" if layers else f"o{i}"}
    modules = {f"m{i}": {"type": kind, "config": config} for i in range(count)}
    made = document(nodes, last["ref"], shape=(4, 2), modules=modules)
    return pack(header, made | {"ties": ties}, b"\0" * at)


def constants(rng: random.Random) -> bytes:
    """Much is computed from nothing, once, while the file is loaded."""
    kind = rng.choice(("chain", "kept", "matmul", "conv", "integers"))
    return from_nothing(kind, rng.choice((50, 2_400)), rng.choice((8, 64, 512, 1500)))


def from_nothing(kind: str, count: int, side: int) -> bytes:
    nodes = [call("z", "function", "torch.ones", {"tuple": [side, side]})]
    if kind == "integers":
        nodes[0]["kwargs"] = {"dtype": {"dtype": "int64"}}
    last = {"ref": "z"}
    for i in range(count):
        step = ("method", "sigmoid", last)
        if kind in ("matmul", "integers"):
            step = ("function", "torch.matmul", {"ref": "z"}, last)
        elif kind == "conv":
            nodes.append(call(f"v{i}", "method", "view", last, 1, 1, side, side))
            kernel = {"ref": f"v{i}"}
            step = ("function", "functional.conv2d", kernel, kernel, None, 1, side // 2)
        nodes.append(call(f"n{i}", *step))
        if kind != "conv":
            last = {"ref": f"n{i}"}
        if kind == "kept":
            nodes.append(call(f"k{i}", "method", "sum", last))
    nodes.append(call("sum", "method", "sum", {"ref": nodes[-1]["name"]}))
    nodes.append(call("end", "function", "operator.mul", X, {"ref": "sum"}))
    if kind == "kept":
        for i in range(count):
            nodes.append(call(f"a{i}", "function", "operator.add",
                              {"ref": nodes[-1]["name"]}, {"ref": f"k{i}"}))  # fmt: skip
    return file(nodes, nodes[-1]["name"])


COSTLY: dict[str, Callable[[random.Random], bytes]] = {
    function.__name__: function
    for function in (steps, kept, lists, apart, ranks, encoders, constants)
}
