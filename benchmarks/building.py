"""Extractor files written by hand, node by node."""

from __future__ import annotations

from benchmarks.mutations import pack

X = {"ref": "input"}


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
