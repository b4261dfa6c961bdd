"""Which nodes may share memory, and which write into their first argument.

Conservative: a node that is not known to make a new tensor may share memory with all its
arguments. Needed to clone a boundary tensor exactly when an in-place operation could reach it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from swift_hapi.graph import functions, ir
from swift_hapi.graph.ir import ModuleSpec, Node, Ref
from swift_hapi.graph.module_types import MODULE_TYPES

Specs = Mapping[str, ModuleSpec | None]


def _row(node: Node) -> functions.Function | None:
    if node.op == ir.METHOD:
        return functions.METHODS.get(node.target)
    return functions.function(node.target) if node.op == ir.FUNCTION else None


def written_to(node: Node, specs: Specs) -> str | None:
    """Name of the node whose value ``node`` overwrites, if it works in place."""
    if node.op == ir.MODULE:
        spec = specs.get(node.target)
        writes = spec is not None and spec.config.get("inplace") is True
    else:
        row = _row(node)
        writes = row is not None and row.writes(node.args, node.kwargs)
    if not writes:
        return None
    target = node.args[0] if node.args else None
    return target.name if isinstance(target, Ref) else next(node.refs(), None)


def _fresh(node: Node, specs: Specs) -> bool:
    if node.op == ir.MODULE:
        spec = specs.get(node.target)
        return spec is not None and MODULE_TYPES[spec.type].fresh
    row = _row(node)
    return row is not None and row.fresh


def aliases(nodes: Iterable[Node], specs: Specs, roots: Iterable[str]) -> set[str]:
    """Names of the nodes that may share memory with one of ``roots`` (themselves included)."""
    found = set(roots)
    for node in nodes:
        target = written_to(node, specs)
        if target is not None:
            # The result is the memory that was written to, and not that of other arguments.
            shares = target in found
        else:
            shares = not _fresh(node, specs) and any(name in found for name in node.refs())
        if shares:
            found.add(node.name)
    return found


def overwrites(nodes: Iterable[Node], specs: Specs, roots: Iterable[str]) -> Node | None:
    """The first of ``nodes`` that may write into the memory of one of ``roots``."""
    nodes = tuple(nodes)
    shared = aliases(nodes, specs, roots)
    for node in nodes:
        if written_to(node, specs) in shared:
            return node
    return None


def settle_writes(nodes: tuple[Node, ...], specs: Specs, output: str):
    """Make in-place operations visible in the data flow.

    After ``b = relu_(a)`` every later use of ``a`` becomes a use of ``b``, which is the same
    memory: then what a node needs can be read off its references alone.

    :returns: nodes, output name, and the first node that overwrites memory which another name
        still reads later (a view of it, say): no reordering or cut is safe there. None if fine.
    """
    now: dict[str, str] = {}

    def current(ref: Ref) -> Ref:
        return Ref(now.get(ref.name, ref.name))

    settled: list[Node] = []
    for node in nodes:
        node = ir.with_refs(node, current)
        target = written_to(node, specs)
        if target is not None:
            for old, new in now.items():
                now[old] = node.name if new == target else new
            now[target] = node.name
        settled.append(node)
    return tuple(settled), now.get(output, output), _conflict(tuple(settled), specs)


def _conflict(nodes: tuple[Node, ...], specs: Specs) -> Node | None:
    last_use = {name: at for at, node in enumerate(nodes) for name in node.refs()}
    for at, node in enumerate(nodes):
        target = written_to(node, specs)
        if target is None:
            continue
        # Everything that may be the same memory: what target stems from, and what stems from it.
        family = {target}
        for earlier in reversed(nodes[:at]):
            if earlier.name in family and not _starts_memory(earlier, specs):
                family.update(earlier.refs())
        family = aliases(nodes[:at], specs, family)
        if any(last_use.get(name, -1) > at for name in family - {target}):
            return node
    return None


def _starts_memory(node: Node, specs: Specs) -> bool:
    return _fresh(node, specs) and written_to(node, specs) is None
