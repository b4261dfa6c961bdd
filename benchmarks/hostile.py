"""Extractor files written to exhaust memory, time or the stack of whoever reads them."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable

from benchmarks.building import X, call, chain, document, file, pack, with_header
from benchmarks.costly import COSTLY
from benchmarks.curious import CURIOUS
from benchmarks.extremes import EXTREME


def expand(rng: random.Random) -> bytes:
    sizes = [-1, *[rng.choice((10**3, 10**6, 10**9, 2**40)) for _ in range(rng.randrange(1, 5))]]
    nodes = [
        call("a", "method", "mean", X, {"tuple": [1, 2, 3]}),
        call("b", "method", "reshape", {"ref": "a"}, {"tuple": [-1, *[1] * (len(sizes) - 1)]}),
        call("c", "method", "expand", {"ref": "b"}, *sizes),
        call("d", "method", rng.choice(("clone", "sigmoid", "contiguous", "exp")), {"ref": "c"}),
        call("e", "method", "flatten", {"ref": "d"}, 1),
    ]
    return file(nodes, "e")


def pad(rng: random.Random) -> bytes:
    sizes = [
        rng.choice((0, 1, -1, 10**4, 10**8, 2**31, -(10**6)))
        for _ in range(rng.choice((2, 4, 6, 8)))
    ]
    mode = rng.choice(("constant", "reflect", "replicate", "circular"))
    return file([call("a", "function", "functional.pad", X, {"tuple": sizes}, mode)], "a")


def repeat(rng: random.Random) -> bytes:
    times = [1, *[rng.choice((1, 100, 10**4, 10**9)) for _ in range(3)]]
    return file([call("a", "method", "repeat", X, *times)], "a")


def create(rng: random.Random) -> bytes:
    size = [rng.choice((2**10, 2**20, 2**28, 2**40, 2**62)) for _ in range(rng.randrange(1, 4))]
    target = rng.choice(("zeros", "ones"))
    nodes = [call(f"z{i}", "function", f"torch.{target}", {"tuple": size}) for i in range(40)]
    nodes.append(call("a", "method", "sum", {"ref": "z0"}))
    last = "a"
    for i in range(1, 40):
        nodes.append(call(f"s{i}", "method", "sum", {"ref": f"z{i}"}))
        nodes.append(call(f"t{i}", "function", "operator.add", {"ref": last}, {"ref": f"s{i}"}))
        last = f"t{i}"
    nodes.append(call("out", "function", "operator.mul", X, {"ref": last}))
    return file(nodes, "out")


def upsample(rng: random.Random) -> bytes:
    scale = rng.choice((10, 1000, 10**5, 10**9, 1e30, -3, 0))
    mode = rng.choice(("nearest", "bilinear", "bicubic", "area"))
    return file([call("a", "function", "functional.interpolate", X, None, scale, mode)], "a")


def many_nodes(rng: random.Random) -> bytes:
    count = rng.choice((4_500, 4_999, 5_001, 10**5, 10**6))
    return chain(count, "method", rng.choice(("sigmoid", "relu", "view_as", "contiguous")))


def many_parts(rng: random.Random) -> bytes:
    """Each node makes many tensors."""
    nodes = [
        call("w", "method", "flatten", X, 1),
        call("r", "method", "repeat", {"ref": "w"}, 1, rng.choice((1, 20))),
    ]
    for i in range(rng.choice((5, 50, 400))):
        nodes.append(
            call(f"u{i}", "method", rng.choice(("unbind", "chunk", "split")), {"ref": "r"}, 1)
            if rng.random() < 0.5
            else call(f"u{i}", "method", "split", {"ref": "r"}, 1, 1)
        )
        nodes.append(call(f"c{i}", "function", "torch.cat", {"ref": f"u{i}"}, rng.choice((0, 1))))
    return file(nodes, nodes[-1]["name"])


def doubling(rng: random.Random) -> bytes:
    return _double(rng.choice((5, 20, 40, 60)))


def _double(count: int) -> bytes:
    nodes, last = [], "input"
    for i in range(count):
        nodes.append(call(f"n{i}", "function", "torch.cat", [{"ref": last}, {"ref": last}], 1))
        last = f"n{i}"
    return file(nodes, last)


def cycle(rng: random.Random) -> bytes:
    nodes = [
        call("a", "function", "operator.add", X, {"ref": "c"}),
        call("b", "function", "operator.add", {"ref": "a"}, {"ref": "a"}),
        call("c", "function", "operator.add", {"ref": "b"}, {"ref": "a"}),
    ]
    return file(nodes, rng.choice("abc"))


def numbers(rng: random.Random) -> bytes:
    """Integers and sequences that Python itself would choke on."""
    nodes = [call("s", "method", "size", X, 1)]
    last = {"ref": "s"}
    for i in range(rng.choice((3, 40))):
        target = rng.choice(("operator.mul", "operator.pow", "operator.add", "operator.mul"))
        other = rng.choice((last, 10**9, [0], {"tuple": [0] * 50}))
        nodes.append(call(f"n{i}", "function", target, last, other))
        last = {"ref": f"n{i}"}
    nodes.append(call("out", "method", "view", X, -1, last))
    return file(nodes, "out")


def work(rng: random.Random) -> bytes:
    """Little memory, endless work."""
    kind = rng.randrange(4)
    if kind == 0:
        side = rng.choice((64, 512, 4096))
        window = rng.choice((15, 255, 1001))
        return file([call("p", "function", "functional.pad", X, {"tuple": [window] * 4}),
                      call("a", "function", "functional.avg_pool2d", {"ref": "p"}, window, 1)],
                     "a", shape=(3, side, side))  # fmt: skip
    if kind == 1:
        return chain(4_900, "method", "exp")
    if kind == 2:
        nodes, last = [call("f", "method", "flatten", X, 2)], {"ref": "f"}
        for i in range(3_000):
            nodes.append(call(f"t{i}", "method", "transpose", last, 1, 2))
            nodes.append(call(f"m{i}", "function", "torch.matmul", {"ref": f"t{i}"}, last))
            last = {"ref": f"m{i}"}
        return file(nodes, last["ref"], shape=(64, 64, 64))
    return file(
        [
            call(
                "a", "function", "functional.local_response_norm", X, rng.choice((5, 10**4, 10**9))
            )
        ],
        "a",
    )


def modules(rng: random.Random) -> bytes:
    """Module settings beyond reason, or thousands of modules."""
    kind = rng.randrange(3)
    big = rng.choice((2**20, 2**31 - 1, 10**9, 0, -5))
    if kind == 0:
        config = {"output_size": {"tuple": [big, big]}}
        return file([call("a", "module", "m", X)], "a",
                     modules={"m": {"type": "AdaptiveAvgPool2d", "config": config}})  # fmt: skip
    if kind == 1:
        config = {
            "size": None,
            "scale_factor": float(big),
            "mode": "nearest",
            "align_corners": None,
        }
        return file([call("a", "module", "m", X)], "a",
                     modules={"m": {"type": "Upsample", "config": config}})  # fmt: skip
    specs, nodes, last = {}, [], "input"
    config = {"size": rng.choice((1, 5, 50)), "alpha": 0.1, "beta": 0.5, "k": 1.0}
    for i in range(rng.choice((100, 1500, 4900))):
        specs[f"m{i}"] = {"type": "LocalResponseNorm", "config": config}
        nodes.append(call(f"n{i}", "module", f"m{i}", {"ref": last}))
        last = f"n{i}"
    return file(nodes, last, modules=specs)


def names(rng: random.Random) -> bytes:
    bad = rng.choice(
        ("a.b", "a\nb", "", "a" * 10**5, "a b", "\u0000", "input", "a;b", "__class__", "é")
    )
    return file([call(bad, "method", "sigmoid", X)], bad)


def targets(rng: random.Random) -> bytes:
    target = rng.choice(
        (
            "os.system",
            "eval",
            "builtins.exec",
            "torch.load",
            "__reduce__",
            "backward",
            "torch.ops.load_library",
            "numpy",
            "data_ptr",
            "set_",
            "resize_",
            "share_memory_",
            "register_hook",
            "apply_",
            "map_",
            "__class__",
            "operator.attrgetter",
            "getattr",
        )
    )
    return file(
        [call("a", rng.choice(("function", "method", "module", "attr")), target, X, "ls")], "a"
    )


def nested(rng: random.Random) -> bytes:
    depth = rng.choice((9, 100, 10**4, 10**6))
    opening, closing = rng.choice((("[", "]"), ('{"tuple":[', "]}"), ('{"a":', "}")))
    middle = "0" if opening.startswith('{"a') else ""
    value = opening * depth + middle + closing * depth
    text = json.dumps(document([call("a", "function", "torch.cat", "HERE")], "a"))
    text = text.replace('"HERE"', value)
    return with_header(json.dumps({"__metadata__": {"hapi": text}}).encode())


def lengths(rng: random.Random) -> bytes:
    length = rng.choice((2**63, 2**64 - 1, 2**62, 2**40, 2**32, 10**9, 0, 1, 7))
    return struct.pack("<Q", length) + rng.randbytes(rng.randrange(200))


def wide_json(rng: random.Random) -> bytes:
    """Millions of tiny values: they take far more memory parsed than written."""
    item = rng.choice(("[]", "{}", "0", '""', "1e9", '{"ref":"a"}'))
    size = rng.choice((2**20, 7 * 2**20, 9 * 2**20))
    value = "[" + ",".join([item] * (size // (len(item) + 1))) + "]"
    if rng.random() < 0.5:
        return with_header(('{"__metadata__":{"hapi":' + json.dumps(value) + "}}").encode())
    return with_header(value.encode())


def duplicates(rng: random.Random) -> bytes:
    row = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    text = json.dumps(json.dumps(document([], "input")))
    return with_header(
        (f'{{"__metadata__":{{"hapi":{text}}},"a":{row},"a":{row}}}').encode(), b"\0" * 4
    )


def many_tensors(rng: random.Random) -> bytes:
    """Tens of thousands of tensors, empty or of one element, or of impossible shapes."""
    shape = rng.choice(([0], [0, 2**62], [1], [1] * 8, [0, 2**31, 2**31]))
    size = 4 if 0 not in shape else 0
    header = {f"t{i}": {"dtype": "F32", "shape": shape, "data_offsets": [i * size, (i + 1) * size]}
              for i in range(rng.choice((10, 49_000, 60_000)))}  # fmt: skip
    return pack(header, document([], "input"), b"\0" * (size * len(header)))


def ties(rng: random.Random) -> bytes:
    made = document([call("a", "method", "sigmoid", X)], "a")
    made["ties"] = {
        f"a{i}": rng.choice(("a", "a0", "x")) for i in range(rng.choice((1, 60_000)))
    }
    return pack({}, made, b"")


def inputs(rng: random.Random) -> bytes:
    shape = [
        rng.choice((1, 8, 0, -1, 65_536, 2**31, 1.5, True, None)) for _ in range(rng.randrange(7))
    ]
    return file([call("a", "method", "sigmoid", X)], "a", shape=shape)


HOSTILE: dict[str, Callable[[random.Random], bytes]] = {
    function.__name__: function
    for function in (
        expand, pad, repeat, create, upsample, many_nodes, many_parts, doubling, cycle, numbers,
        work, modules, names, targets, nested, lengths, wide_json, duplicates, many_tensors, ties,
        inputs,
    )
} | COSTLY | EXTREME | CURIOUS  # fmt: skip
