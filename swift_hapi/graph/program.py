"""Nodes compiled once into a flat list of calls, and run many times.

No code is generated: a step is a closure over a callable from the fixed tables (or a module, or
a tensor look-up) and the register numbers of its arguments. A register is emptied at its last
use, so that memory falls as the network narrows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from swift_hapi.graph import ir
from swift_hapi.graph.ir import Node, Ref

Registers = list
Resolve = Callable[[Node], Callable]
#: given the place of a node among those that run
Before = Callable[[int], None]


@dataclass(frozen=True)
class _Step:
    call: Callable[[Registers], object]
    out: int
    dead: tuple[int, ...]


def _reader(value: object, slots: Mapping[str, int]) -> Callable[[Registers], object]:
    """A function from the registers to the value of one argument."""
    if isinstance(value, Ref):
        slot = slots[value.name]
        return lambda registers: registers[slot]
    if isinstance(value, list):
        # A new list each time: some functions change the list they are given.
        items = [_reader(item, slots) for item in value]
        return lambda registers: [item(registers) for item in items]
    if next(ir.refs_in(value), None) is None:
        return lambda registers: value
    if isinstance(value, tuple):
        items = [_reader(item, slots) for item in value]
        return lambda registers: tuple([item(registers) for item in items])
    start, stop, step = (_reader(x, slots) for x in (value.start, value.stop, value.step))
    return lambda registers: slice(start(registers), stop(registers), step(registers))


def _call(function: Callable, node: Node, slots: Mapping[str, int]):
    args = node.args
    if not node.kwargs and all(isinstance(arg, Ref) for arg in args):
        if len(args) == 1:
            one = slots[args[0].name]
            return lambda registers: function(registers[one])
        if len(args) == 2:
            one, two = (slots[arg.name] for arg in args)
            return lambda registers: function(registers[one], registers[two])
    readers = [_reader(arg, slots) for arg in args]
    named = [(key, _reader(value, slots)) for key, value in node.kwargs.items()]
    if not named:
        return lambda registers: function(*[read(registers) for read in readers])
    return lambda registers: function(
        *[read(registers) for read in readers],
        **{key: read(registers) for key, read in named},
    )


class Program:
    """Runs ``nodes`` from the value of ``source`` to the value of ``output``.

    :param nodes: in order; every reference is to ``source``, to a name in ``known``, or back
    :param known: values that are there from the start (constants)
    :param resolve: the callable of a node (module, function, method, or tensor look-up)
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        source: str,
        output: str,
        resolve: Resolve,
        known: Mapping[str, object] | None = None,
    ):
        needed = {name for node in nodes for name in node.refs()} | {output}
        known = {name: known[name] for name in needed if name in known} if known else {}
        slots: dict[str, int] = {source: 0}
        for name in (*known, *(node.name for node in nodes)):
            slots.setdefault(name, len(slots))
        self._registers: Registers = [None] * len(slots)
        for name, value in known.items():
            self._registers[slots[name]] = value
        self._output = slots[output]

        kept = {slots[name] for name in known} | {self._output}
        last_use = {slots[name]: at for at, node in enumerate(nodes) for name in node.refs()}
        dead: dict[int, list[int]] = {}
        for slot, at in last_use.items():
            if slot not in kept:
                dead.setdefault(at, []).append(slot)
        self._steps = tuple(
            _Step(
                _call(resolve(node), node, slots),
                slots[node.name],
                tuple(dead.get(at, ())),
            )
            for at, node in enumerate(nodes)
        )

    def __call__(self, x: object, before: Before | None = None) -> object:
        """:param before: called before every node; what it raises ends the run"""
        registers = self._registers.copy()
        registers[0] = x
        del x
        for at, step in enumerate(self._steps):
            if before is not None:
                before(at)
            registers[step.out] = step.call(registers)
            for slot in step.dead:
                registers[slot] = None
        return registers[self._output]
