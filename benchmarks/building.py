"""Extractor files put together by hand, node by node, and taken apart again."""

from __future__ import annotations

import json
import struct

X = {"ref": "input"}


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


def only(header: dict, rest: bytes, names: set[str]) -> tuple[dict, bytes]:
    """The tensors of those names, moved together."""
    kept, parts, at = {}, [], 0
    rows = sorted((row["data_offsets"], name) for name, row in header.items() if name in names)
    for (begin, end), name in rows:
        kept[name] = {**header[name], "data_offsets": [at, at + end - begin]}
        parts.append(rest[begin:end])
        at += end - begin
    return kept, b"".join(parts)


def document(nodes: list[dict], output: str, shape=(3, 8, 8), modules=None) -> dict:
    return {
        "format": "swift-hapi-extractor",
        "version": 1,
        "input": {"shape": list(shape), "dtype": "float32", "fixed": False},
        "constants": [],
        "ties": {},
        "nodes": [{"name": "input", "op": "input"}, *nodes],
        "modules": modules or {},
        "output": output,
    }


def file(nodes: list[dict], output: str, **options) -> bytes:
    return pack({}, document(nodes, output, **options), b"")


def call(name: str, op: str, target: str, *args, **kwargs) -> dict:
    row = {"name": name, "op": op, "target": target, "args": list(args)}
    return row | ({"kwargs": kwargs} if kwargs else {})


def chain(count: int, op: str, target: str, *args) -> bytes:
    nodes, last = [], "input"
    for i in range(count):
        nodes.append(call(f"n{i}", op, target, {"ref": last}, *args))
        last = f"n{i}"
    return file(nodes, last)
