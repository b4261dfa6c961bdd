"""Graph <-> JSON, with every check that needs no tensor.

Values are written as: None, bool, int, finite float and str as themselves; a list as an array;
everything else as an object with one key: ``{"ref": name}``, ``{"tuple": [...]}``,
``{"slice": [start, stop, step]}``, ``{"ellipsis": true}``, ``{"dtype": "float32"}``,
``{"layout": "channels_last"}``, ``{"float": "inf"}``.
"""

from __future__ import annotations

import json
import math
import re

import torch

from swift_hapi.graph import ir
from swift_hapi.graph.caps import MAX_MODULES, MAX_NODES, MAX_VALUES
from swift_hapi.graph.ir import Graph, ModuleSpec, Node, Ref
from swift_hapi.graph.module_types import MODULE_TYPES
from swift_hapi.graph.modules import check_spec
from swift_hapi.graph.operations import NODE_NAME, check_held, check_name, check_operation
from swift_hapi.protocol.errors import ModelInvalid

MAX_DEPTH = 8
MAX_INT = 2**62

_STRING = re.compile(r"[A-Za-z0-9_ .,>\-]{0,100}", re.ASCII)

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.int64, torch.int32, torch.uint8, torch.bool)
}
_LAYOUTS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}
_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_NAME_OF_DTYPE = {dtype: name for name, dtype in DTYPES.items()}
_NAME_OF_LAYOUT = {layout: name for name, layout in _LAYOUTS.items()}


def dumps(document: object) -> bytes:
    """Canonical JSON: sorted keys, no spaces, ASCII."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def _unique(pairs: list[tuple[str, object]]) -> dict:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ModelInvalid("a key occurs twice in a JSON object")
    return found


def _no_constant(word: str):
    raise ModelInvalid(f"{word} is not JSON")


def loads(text: bytes | str) -> object:
    """Strict JSON: no duplicate keys, no NaN, not too many values.

    :raises ModelInvalid: anything else
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
        if sum(map(text.count, ",[{")) > MAX_VALUES:
            raise ModelInvalid(f"more than {MAX_VALUES} values in a header")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ModelInvalid(f"not valid JSON: {error}") from error


def encode_value(value: object) -> object:
    """:raises ModelInvalid: a value that files cannot hold"""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Ref):
        return {"ref": value.name}
    if isinstance(value, list):
        return [encode_value(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encode_value(item) for item in value]}
    if isinstance(value, slice):
        return {"slice": [encode_value(x) for x in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, torch.dtype) and value in _NAME_OF_DTYPE:
        return {"dtype": _NAME_OF_DTYPE[value]}
    if isinstance(value, torch.memory_format) and value in _NAME_OF_LAYOUT:
        return {"layout": _NAME_OF_LAYOUT[value]}
    raise ModelInvalid(f"an argument {value!r} ({type(value).__name__}) has no place in a file")


def decode_value(document: object, depth: int = 0) -> object:
    """:raises ModelInvalid: not the form :func:`encode_value` writes"""
    if depth > MAX_DEPTH:
        raise ModelInvalid("arguments are nested too deeply")
    if document is None or isinstance(document, (bool, float)):
        return document
    if isinstance(document, int):
        if abs(document) > MAX_INT:
            raise ModelInvalid("an integer is too large")
        return document
    if isinstance(document, str):
        if not _STRING.fullmatch(document):
            raise ModelInvalid("a string argument has characters that are not allowed")
        return document
    if isinstance(document, list):
        return [decode_value(item, depth + 1) for item in document]
    if isinstance(document, dict) and len(document) == 1:
        ((kind, inner),) = document.items()
        if kind == "ref" and isinstance(inner, str):
            return Ref(inner)
        if kind == "tuple" and isinstance(inner, list):
            return tuple(decode_value(item, depth + 1) for item in inner)
        if kind == "slice" and isinstance(inner, list) and len(inner) == 3:
            return slice(*(decode_value(item, depth + 1) for item in inner))
        if kind == "ellipsis" and inner is True:
            return Ellipsis
        table = {"dtype": DTYPES, "layout": _LAYOUTS, "float": _FLOATS}.get(kind)
        if table is not None and isinstance(inner, str) and inner in table:
            return table[inner]
    raise ModelInvalid("an argument is written in an unknown form")


def encode_graph(graph: Graph) -> dict:
    """The JSON document of a graph.

    :raises ModelInvalid: an operation or argument that a file cannot hold; the detail names the
        node
    """
    nodes = []
    for node in graph.nodes:
        try:
            check_operation(node, graph.modules)
            row = {"name": node.name, "op": node.op}
            if node.target:
                row["target"] = node.target
            if node.args:
                row["args"] = [encode_value(value) for value in node.args]
            if node.kwargs:
                row["kwargs"] = {key: encode_value(v) for key, v in node.kwargs.items()}
        except ModelInvalid as error:
            raise ModelInvalid(f"node '{node.name}': {error.detail}") from error
        nodes.append(row)
    modules = {
        path: {
            "type": spec.type,
            "config": {key: encode_value(value) for key, value in spec.config.items()},
        }
        for path, spec in graph.modules.items()
    }
    return {"nodes": nodes, "modules": modules, "output": graph.output}


def _decode_modules(document: object) -> dict[str, ModuleSpec]:
    if not isinstance(document, dict) or len(document) > MAX_MODULES:
        raise ModelInvalid("'modules' is no object, or has too many members")
    specs, parts = {}, 0
    for path, row in document.items():
        check_name(path, "a module")
        if not isinstance(row, dict) or set(row) != {"type", "config"}:
            raise ModelInvalid(f"module '{path}' must have 'type' and 'config'")
        if not isinstance(row["type"], str) or not isinstance(row["config"], dict):
            raise ModelInvalid(f"module '{path}' is malformed")
        config = {key: decode_value(value) for key, value in row["config"].items()}
        specs[path] = ModuleSpec(row["type"], config)
        check_spec(specs[path], path)
        parts += MODULE_TYPES[specs[path].type].parts
    if parts > MAX_MODULES:
        raise ModelInvalid(f"the modules are made of more than {MAX_MODULES} parts")
    return specs


def _decode_node(row: object) -> Node:
    if not isinstance(row, dict) or not {"name", "op"} <= set(row):
        raise ModelInvalid("a node needs 'name' and 'op'")
    name, op = row["name"], row["op"]
    if not isinstance(name, str) or not NODE_NAME.fullmatch(name):
        raise ModelInvalid(f"bad node name {str(name)[:80]!r}")
    args, kwargs, target = row.get("args", []), row.get("kwargs", {}), row.get("target", "")
    odd = set(row) - {"name", "op", "target", "args", "kwargs"}
    if odd or not (isinstance(args, list) and isinstance(kwargs, dict)):
        raise ModelInvalid(f"node '{name}' is malformed")
    if op not in ir.OPS or not isinstance(target, str):
        raise ModelInvalid(f"node '{name}': unknown operation {str(op)[:40]!r}")
    try:
        return Node(
            name,
            op,
            target,
            tuple(decode_value(value) for value in args),
            {key: decode_value(value) for key, value in kwargs.items()},
        )
    except ModelInvalid as error:
        raise ModelInvalid(f"node '{name}': {error.detail}") from error


def decode_graph(document: dict) -> Graph:
    """Read and check a graph: names, limits, tables, and that every reference points back.

    :raises ModelInvalid: naming the node at fault
    """
    rows = document.get("nodes")
    if not isinstance(rows, list) or not 1 <= len(rows) <= MAX_NODES:
        raise ModelInvalid(f"'nodes' must be an array of 1 to {MAX_NODES} nodes")
    modules = _decode_modules(document.get("modules"))
    nodes: list[Node] = []
    seen: set[str] = set()
    for row in rows:
        node = _decode_node(row)
        if (node.op == ir.INPUT) != (not nodes):
            raise ModelInvalid(f"node '{node.name}': the first node, and only it, is the input")
        if node.name in seen:
            raise ModelInvalid(f"two nodes are called '{node.name}'")
        try:
            check_operation(node, modules)
        except ModelInvalid as error:
            raise ModelInvalid(f"node '{node.name}': {error.detail}") from error
        for name in node.refs():
            if name not in seen:
                raise ModelInvalid(
                    f"node '{node.name}' refers to '{name[:80]}', which is not defined before it"
                )
        seen.add(node.name)
        nodes.append(node)
    output = document.get("output")
    if not isinstance(output, str) or output not in seen:
        raise ModelInvalid("'output' names no node")
    used = {node.target for node in nodes if node.op == ir.MODULE}
    if used != set(modules):
        raise ModelInvalid(f"modules never used: {', '.join(sorted(set(modules) - used)[:5])}")
    check_held(nodes)
    return Graph(tuple(nodes), modules, output)
