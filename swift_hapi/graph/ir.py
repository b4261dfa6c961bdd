"""The graph of a frozen part: plain, frozen data, no code.

A graph is a list of nodes in the order they run. A node's arguments are *values*: ``None``,
bool, int, float, str, ``Ref`` to an earlier node, slice, Ellipsis, torch dtype or memory format,
and tuples and lists of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

INPUT, ATTR, MODULE, FUNCTION, METHOD = "input", "attr", "module", "function", "method"
OPS = (INPUT, ATTR, MODULE, FUNCTION, METHOD)


@dataclass(frozen=True)
class Ref:
    """The value of the node of that name."""

    name: str


@dataclass(frozen=True)
class Node:
    """One step.

    :param op: ``input``; ``attr`` (target: tensor name); ``module`` (target: path in the graph's
        modules); ``function`` or ``method`` (target: name in the tables of ``functions.py``)
    """

    name: str
    op: str
    target: str
    args: tuple = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)

    def refs(self) -> Iterator[str]:
        """Names of the nodes this one reads, in order, with repetitions."""
        yield from refs_in(self.args)
        for value in self.kwargs.values():
            yield from refs_in(value)


@dataclass(frozen=True)
class ModuleSpec:
    """What a module is: a type named in ``modules.MODULE_TYPES`` and its configuration."""

    type: str
    config: Mapping[str, object]


@dataclass(frozen=True)
class Graph:
    """Nodes in running order (the first is the input), module specs by path, output node.

    A spec of None stands for a module outside the table: possible in memory only, for the part
    of a model that is never written to a file.
    """

    nodes: tuple[Node, ...]
    modules: Mapping[str, ModuleSpec | None]
    output: str

    @property
    def input(self) -> str:
        return self.nodes[0].name


def refs_in(value: object) -> Iterator[str]:
    """Names referred to anywhere in ``value``."""
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from refs_in(item)
    elif isinstance(value, slice):
        yield from refs_in((value.start, value.stop, value.step))


def map_refs(value: object, change: Callable[[Ref], object]) -> object:
    """``value`` with every ``Ref`` replaced by ``change(ref)``."""
    if isinstance(value, Ref):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)([map_refs(item, change) for item in value])
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return slice(*(map_refs(part, change) for part in parts))
    return value


def with_refs(node: Node, change: Callable[[Ref], object]) -> Node:
    """``node`` with every reference in its arguments replaced."""
    kwargs = {key: map_refs(value, change) for key, value in node.kwargs.items()}
    return Node(node.name, node.op, node.target, map_refs(node.args, change), kwargs)


def slice_to(nodes: tuple[Node, ...], output: str, stop: str | None = None) -> tuple[Node, ...]:
    """The nodes that ``output`` needs, in order; the search goes no further than ``stop``, which
    is left out."""
    by_name = {node.name: node for node in nodes}
    needed: set[str] = set()
    todo = [output]
    while todo:
        name = todo.pop()
        if name == stop or name in needed:
            continue
        needed.add(name)
        todo.extend(by_name[name].refs())
    return tuple(node for node in nodes if node.name in needed)


def input_dependent(nodes: tuple[Node, ...], source: str) -> set[str]:
    """Names of the nodes whose value depends on node ``source`` (itself included)."""
    dependent = {source}
    for node in nodes:
        if any(name in dependent for name in node.refs()):
            dependent.add(node.name)
    return dependent
