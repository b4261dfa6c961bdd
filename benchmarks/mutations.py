"""Extractor files that are wrong: good ones in which something was changed."""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Callable, Iterator

from benchmarks.building import only, pack, unpack
from benchmarks.likely import likely
from swift_hapi.graph.functions import FUNCTIONS, METHODS
from swift_hapi.graph.module_types import MODULE_TYPES

#: values that have broken other programs
ODD_NUMBERS = (
    0, 1, -1, 2, 3, 7, -7, 64, 255, 4096, 65_537, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**62),
    2**63, 10**30, 0.0, -0.0, 0.5, 1e-300, 1e300, 1.5e9,
)  # fmt: skip
ODD_NAMES = (
    "", ".", "..", "a.b", "a\nb", "a b", "../x", "/etc/passwd", "__class__", "input", "x" * 5000,
    "\u0000", "\u202e", "é", "0", "None", "conv", "fc.weight", "a..b", "-", "_",
)  # fmt: skip


def flip_bytes(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    # More often where structure is than where weights are.
    end = len(data) if rng.random() < 0.3 else 8 + struct.unpack("<Q", data[:8])[0]
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        odd = rng.randrange(256) if rng.random() < 0.5 else rng.choice(b'0123456789abz_.-",:[]{}')
        changed[rng.randrange(end)] = odd
    return bytes(changed)


def cut_bytes(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    kind = rng.randrange(4)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[at + rng.randrange(1, 64) :]
    if kind == 2:
        return data[:at] + rng.randbytes(rng.randrange(1, 64)) + data[at:]
    return data[:at] + data[rng.randrange(len(data)) :]


def _places(value: object, path: tuple = ()) -> Iterator[tuple]:
    """Paths of everything in a JSON value."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _places(item, (*path, i))


def _odd_value(rng: random.Random, names: list[str]) -> object:
    kind = rng.randrange(9)
    if kind == 0:
        return rng.choice(ODD_NUMBERS)
    if kind == 1:
        return rng.choice(ODD_NAMES)
    if kind == 2:
        return {"ref": rng.choice(names)}
    if kind == 3:
        return [rng.choice(ODD_NUMBERS) for _ in range(rng.randrange(5))]
    if kind == 4:
        return {"tuple": [rng.choice(ODD_NUMBERS) for _ in range(rng.randrange(6))]}
    if kind == 5:
        return {"slice": [rng.choice((None, 0, 1, -1, 5)) for _ in range(3)]}
    if kind == 6:
        return {"dtype": rng.choice(("float32", "int64", "bool", "float64", "uint8"))}
    if kind == 7:
        return rng.choice((None, True, False, {"ellipsis": True}, {"float": "nan"}))
    return rng.randrange(-8, 9)


def change_document(rng: random.Random, data: bytes) -> bytes:
    """Replace, remove, double or exchange parts of the graph."""
    header, document, rest = unpack(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        nodes = document.get("nodes")
        nodes = nodes if isinstance(nodes, list) else []
        names = [node.get("name") for node in nodes if isinstance(node, dict)]
        names = [name for name in names if isinstance(name, str)] or ["input"]
        path = rng.choice([p for p in _places(document) if p])
        *parents, last = path
        at: object = document
        for part in parents:
            at = at[part]
        kind = rng.randrange(6)
        if kind == 0 and isinstance(at, (dict, list)):
            del at[last]
        elif kind == 1 and isinstance(at, list):
            at.insert(last, copy.deepcopy(at[last]))
        elif kind == 2 and isinstance(at, list) and len(at) > 1:
            other = rng.randrange(len(at))
            at[last], at[other] = at[other], at[last]
        else:
            at[last] = _odd_value(rng, names)
    return pack(header, document, rest)


def change_operation(rng: random.Random, data: bytes) -> bytes:
    """Another function, method or module setting, with arguments that might fit."""
    header, document, rest = unpack(data)
    nodes = document["nodes"]
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(1, len(nodes))
        names = [node["name"] for node in nodes[:at]]
        kind = rng.randrange(4)
        if kind == 0 and document["modules"]:
            spec = document["modules"][rng.choice(list(document["modules"]))]
            if spec["config"] and rng.random() < 0.7:
                spec["config"][rng.choice(list(spec["config"]))] = _odd_value(rng, names)
            else:
                spec["type"] = rng.choice(list(MODULE_TYPES))
            continue
        name = f"new_{rng.randrange(10**6)}"
        op, table = rng.choice((("function", FUNCTIONS), ("method", METHODS)))
        args = [{"ref": names[-1] if rng.random() < 0.6 else rng.choice(names)}]
        args += [_argument(rng, names) for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 3)))]
        row = {"name": name, "op": op, "target": rng.choice(list(table)), "args": args}
        if rng.random() < 0.2:
            row["kwargs"] = {rng.choice(("dim", "keepdim", "size", "inplace", "out", "start_dim",
                                         "training", "dtype")): _argument(rng, names)}  # fmt: skip
        nodes.insert(at, row)
        # Whatever read the node before reads the new one, so that it counts.
        for node in nodes[at + 1 :]:
            node["args"] = _replaced(node.get("args", []), names[-1], name)
        if document["output"] == names[-1]:
            document["output"] = name
    return pack(header, document, rest)


def _argument(rng: random.Random, names: list[str]) -> object:
    kind = rng.randrange(10)
    if kind < 4:
        return rng.randrange(-4, 5)
    if kind == 4:
        return {"ref": rng.choice(names)}
    if kind == 5:
        return {"tuple": [rng.choice((-1, 0, 1, 2, 3, 4, 12)) for _ in range(rng.randrange(1, 5))]}
    if kind == 6:
        return [rng.randrange(-2, 6) for _ in range(rng.randrange(1, 5))]
    if kind == 7:
        return rng.choice((True, False, None, 0.5))
    if kind == 8:
        return {"slice": [rng.choice((None, 0, 1, -1, 2)) for _ in range(3)]}
    return _odd_value(rng, names)


def _replaced(value: object, old: str, new: str) -> object:
    if value == {"ref": old}:
        return {"ref": new}
    if isinstance(value, list):
        return [_replaced(item, old, new) for item in value]
    if isinstance(value, dict):
        return {key: _replaced(item, old, new) for key, item in value.items()}
    return value


def likely_operations(rng: random.Random, data: bytes) -> bytes:
    """A chain of well-formed operations in the middle of a good graph, or instead of its end."""
    header, document, rest = unpack(data)
    nodes = document["nodes"]
    at = rng.randrange(1, len(nodes) + 1)
    first = last = nodes[at - 1]["name"]
    added = []
    for i in range(rng.choice((1, 1, 2, 3, 5, 8))):
        names = [node["name"] for node in (*nodes[:at], *added)]
        op, target, *args = likely(rng, {"ref": last}, names)
        added.append({"name": f"new_{i}", "op": op, "target": target, "args": args})
        last = f"new_{i}"
    if rng.random() < 0.6:
        kept = nodes[:at]
        used = {node.get("target") for node in kept if node["op"] == "module"}
        document["modules"] = {k: v for k, v in document["modules"].items() if k in used}
        attrs = {node.get("target") for node in kept if node["op"] == "attr"}
        # Tensors that nobody reads are an error of their own: leave those that are read.
        names = {key for key in header
                 if key in attrs or any(key.startswith(f"{path}.") for path in used)}  # fmt: skip
        header, rest = only(header, rest, names)
        document["nodes"], document["output"] = kept + added, last
    else:
        for node in nodes[at:]:
            node["args"] = _replaced(node.get("args", []), first, last)
        document["nodes"] = nodes[:at] + added + nodes[at:]
        if document["output"] == first:
            document["output"] = last
    document["constants"] = [name for name in document["constants"] if name in header]
    return pack(header, document, rest)


def change_header(rng: random.Random, data: bytes) -> bytes:
    """Other shapes, dtypes, offsets and names of tensors."""
    header, document, rest = unpack(data)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice([key for key in header if key != "__metadata__"])
        row = header[name]
        kind = rng.randrange(5)
        if kind == 0:
            header[rng.choice(ODD_NAMES)] = header.pop(name)
        elif kind == 1:
            row["shape"] = [rng.choice(ODD_NUMBERS) for _ in range(rng.randrange(9))]
        elif kind == 2:
            row["data_offsets"] = [rng.choice((*ODD_NUMBERS, len(rest))) for _ in range(2)]
        elif kind == 3:
            row["dtype"] = rng.choice(("F32", "F64", "I64", "BOOL", "U8", "I32", "BF16", "", None))
        else:
            row[rng.choice(("dtype", "shape", "data_offsets", "more"))] = _odd_value(rng, ["x"])
    return pack(header, document, rest)


CHANGES: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "flipped bytes": flip_bytes,
    "cut and spliced": cut_bytes,
    "changed document": change_document,
    "changed operation": change_operation,
    "changed header": change_header,
    "likely operations": likely_operations,
    "many likely operations": lambda rng, data: likely_operations(
        rng, likely_operations(rng, data).replace(b"new_", b"old_")
    ),
}
