"""Extractor files that are wrong: good ones in which something was changed."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable, Iterator

import torch
from torch import nn

from benchmarks.likely import likely
from swift_hapi.graph.extractor import extractor_bytes
from swift_hapi.graph.functions import FUNCTIONS, METHODS
from swift_hapi.graph.module_types import MODULE_TYPES
from swift_hapi.graph.split import make_extractor

#: values that have broken other programs
ODD_NUMBERS = (
    0, 1, -1, 2, 3, 7, -7, 64, 255, 4096, 65_537, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**62),
    2**63, 10**30, 0.0, -0.0, 0.5, 1e-300, 1e300, 1.5e9,
)  # fmt: skip
ODD_NAMES = (
    "", ".", "..", "a.b", "a\nb", "a b", "../x", "/etc/passwd", "__class__", "input", "x" * 5000,
    "\u0000", "\u202e", "é", "0", "None", "conv", "fc.weight", "a..b", "-", "_",
)  # fmt: skip


def corpus() -> list[bytes]:
    """Small good files of every kind of network."""
    torch.manual_seed(0)
    made = []
    for model, shape, dtype in (
        (_Convolutions(), (3, 12, 12), torch.float32),
        (_Tokens(), (3, 8, 8), torch.float32),
        (_Words(), (5,), torch.int64),
        (_Windows(), (4, 4, 4), torch.float32),
        (nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.LayerNorm(5)), (6,), torch.float32),
    ):
        extractor = make_extractor(model.eval(), None, shape, dtype)
        made.append(extractor_bytes(extractor))
    return made


class _Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        x = self.pool(self.relu(self.norm(self.conv(x))) * self.scale)
        x = torch.cat([x, torch.sigmoid(x)], 1)
        return self.fc(torch.flatten(x.mean((2, 3), keepdim=True), 1))


class _Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.places = nn.Parameter(torch.zeros(1, 5, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        n = x.shape[0]
        x = self.patch(x).reshape(n, 8, -1).permute(0, 2, 1)
        x = torch.cat([self.token.expand(n, -1, -1), x], 1) + self.places
        return self.attention(x, x, x, need_weights=False)[0][:, 0]


class _Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, ids):
        return self.layer(self.words(ids)).mean(1)


class _Windows(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("order", torch.tensor([1, 0, 3, 2]))

    def forward(self, x):
        n, c, h, w = x.shape
        x = x[:, :, self.order].permute(0, 2, 3, 1)
        x = x.reshape(n, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5)
        x = self.fc(x.reshape(-1, 4, c)).view(n, h // 2, w // 2, 2, 2, c)
        x = torch.roll(x.permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c), (1, 1), (1, 2))
        return torch.softmax(x, -1)


# Taking files apart and putting them together again.


def unpack(data: bytes) -> tuple[dict, dict, bytes]:
    """Header, document, tensors."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["hapi"]), data[8 + length :]


def pack(header: dict, document: object, rest: bytes) -> bytes:
    header = {**header, "__metadata__": {"hapi": json.dumps(document)}}
    return with_header(json.dumps(header).encode(), rest)


def with_header(text: bytes, rest: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text)) + text + rest


# Random changes.


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
        header, rest = _only(header, rest, names)
        document["nodes"], document["output"] = kept + added, last
    else:
        for node in nodes[at:]:
            node["args"] = _replaced(node.get("args", []), first, last)
        document["nodes"] = nodes[:at] + added + nodes[at:]
        if document["output"] == first:
            document["output"] = last
    document["constants"] = [name for name in document["constants"] if name in header]
    return pack(header, document, rest)


def _only(header: dict, rest: bytes, names: set[str]) -> tuple[dict, bytes]:
    """The tensors of those names, moved together."""
    kept, parts, at = {}, [], 0
    rows = sorted((row["data_offsets"], name) for name, row in header.items() if name in names)
    for (begin, end), name in rows:
        kept[name] = {**header[name], "data_offsets": [at, at + end - begin]}
        parts.append(rest[begin:end])
        at += end - begin
    return kept, b"".join(parts)


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
