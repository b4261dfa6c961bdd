"""The part of a model after the freeze cut, as a module that trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from swift_hapi.graph import functions, ir
from swift_hapi.graph.ir import Node
from swift_hapi.graph.program import Program


class TrainablePart(nn.Module):
    """From the tensor at the freeze cut, [n, *shape], to the model's output, [n, classes].

    Its parameters and buffers have the names they have in the whole model. ``train()`` and
    ``eval()`` work as ever; copies (``copy.deepcopy``) are independent.

    :param nodes: what runs, in order, after node ``source``
    :param modules: live modules by path
    :param tensors: what ``attr`` nodes read: parameters, buffers, or plain constants
    :param foreign: functions outside the fixed tables, by target
    :param state: the whole model's state dict; its keys and their order are kept, not its tensors
    :param leftover: tensors of the whole model that its forward never uses
    :param aliases: names of the whole model that are another name's tensor
    :param clone_input: the input would be overwritten: work on a copy
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        source: str,
        output: str,
        modules: Mapping[str, nn.Module],
        tensors: Mapping[str, torch.Tensor],
        foreign: Mapping[str, Callable],
        state: Mapping[str, torch.Tensor],
        leftover: Mapping[str, torch.Tensor],
        aliases: Mapping[str, str],
        clone_input: bool = False,
    ):
        super().__init__()
        self._nodes, self._source, self._output = tuple(nodes), source, output
        self._foreign = dict(foreign)
        self.names = tuple(state)
        self.formats = getattr(state, "_metadata", None)
        self.leftover = dict(leftover)
        self.aliases = dict(aliases)
        self._clone_input = clone_input
        for path in sorted(modules, key=lambda path: path.count(".")):
            owner, leaf = self._owner(path)
            owner.add_module(leaf, modules[path])
        for name, tensor in tensors.items():
            owner, leaf = self._owner(name)
            if getattr(owner, leaf, None) is not None:
                continue
            if isinstance(tensor, nn.Parameter):
                owner.register_parameter(leaf, tensor)
            else:
                owner.register_buffer(leaf, tensor, persistent=name in state)
        self._program: Program | None = None

    def _owner(self, name: str) -> tuple[nn.Module, str]:
        """The module that holds ``name``, made up of plain containers where there is none."""
        *path, leaf = name.split(".")
        owner: nn.Module = self
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner = owner._modules[part]
        return owner, leaf

    def _resolve(self, node: Node) -> Callable:
        if node.op == ir.MODULE:
            return self.get_submodule(node.target)
        if node.op == ir.ATTR:
            owner, leaf = self._owner(node.target)
            return lambda: getattr(owner, leaf)
        if node.target == "functional.dropout":
            return self._dropout
        if node.target in self._foreign:
            return self._foreign[node.target]
        return functions.row_of(node.op, node.target).call

    def _dropout(self, x, p=0.5, training=True, inplace=False):
        """The trace was made in eval mode; whether to drop is for this module's mode to say."""
        return F.dropout(x, p, self.training, inplace)

    def __getstate__(self):
        # The compiled program is bound to this very module; a copy compiles its own.
        return {**self.__dict__, "_program": None}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._program is None:
            self._program = Program(self._nodes, self._source, self._output, self._resolve)
        return self._program(x.clone() if self._clone_input else x)
