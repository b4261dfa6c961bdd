"""Conditions and loops on shapes, decided while a model is traced.

A trace is one straight line: it cannot hold ``if height != new_height``. Where such a condition
comes from the shape of one sample alone, it is decided for the shape the model is traced for,
by running what has been traced so far on meta tensors; the graph then holds for that shape only.
So is the length of what a loop runs over. A condition on the batch size or on values stays an
error.
"""

from __future__ import annotations

import copy

import torch
from torch import fx, nn

from swift_hapi.graph.modules import build, spec_of
from swift_hapi.protocol.errors import ModelInvalid

_BATCHES = (2, 3)


class Branches:
    """
    :param model: being traced
    :param input_shape: of one sample
    :param constants: values of forward's other arguments, by name
    """

    def __init__(
        self,
        model: nn.Module,
        input_shape: tuple[int, ...],
        dtype: torch.dtype,
        constants: dict[str, object],
    ):
        self._model = model
        self._constants = constants
        self._inputs = [
            torch.empty((batch, *input_shape), dtype=dtype, device="meta") for batch in _BATCHES
        ]
        self._values: list[dict[fx.Node, object]] = [{} for _ in _BATCHES]
        self._modules: dict[str, nn.Module] = {}
        #: whether a condition has been decided
        self.taken = False
        #: whether modules are called to find a value, not to be traced
        self.running = False

    def decide(self, node: fx.Node) -> bool | None:
        """What the condition comes to; None if that does not follow from the sample's shape."""
        answers = self._answers(node)
        if any(torch.is_tensor(answer) for answer in answers) or len(set(answers)) != 1:
            return None
        self.taken = True
        return bool(answers[0])

    def length(self, node: fx.Node) -> int | None:
        """How many items the value has; None if that does not follow from the sample's shape."""
        answers = self._answers(node)
        if not answers or not all(isinstance(a, (tuple, list, torch.Tensor)) for a in answers):
            return None
        lengths = {len(answer) for answer in answers}
        # How many dimensions there are does not depend on their sizes.
        self.taken |= not all(isinstance(answer, torch.Size) for answer in answers)
        return lengths.pop() if len(lengths) == 1 else None

    def _answers(self, node: fx.Node) -> list[object]:
        """The node's value for each of two batch sizes; nothing if it cannot be had."""
        self.running = True
        try:
            return [self._run(i, node) for i in range(len(_BATCHES))]
        except Exception:  # noqa: BLE001 - whatever a model's code raises: the trace tells it
            return []
        finally:
            self.running = False

    def _run(self, which: int, last: fx.Node) -> object:
        values = self._values[which]
        with torch.no_grad():
            for node in last.graph.nodes:
                if node not in values:
                    values[node] = self._value(node, which)
                if node is last:
                    break
        return values[last]

    def _value(self, node: fx.Node, which: int) -> object:
        values = self._values[which]
        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
        if node.op == "placeholder":
            # fx adds a suffix where a concrete value was given.
            for name in (str(node.target), str(node.target).rpartition("_")[0]):
                if name in self._constants:
                    return self._constants[name]
            return self._inputs[which]
        if node.op == "get_attr":
            return _on_meta(self._attribute(str(node.target)))
        if node.op == "call_module":
            return self._module(str(node.target))(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        return node.target(*args, **kwargs)

    def _attribute(self, name: str) -> object:
        # Not by getattr: that of modules is fx's own during a trace.
        *path, leaf = name.split(".")
        module = self._module_at(path)
        for place in (module._parameters, module._buffers, vars(module)):
            if leaf in place:
                return place[leaf]
        raise AttributeError(name)

    def _module_at(self, path: list[str]) -> nn.Module:
        module = self._model
        for part in path:
            module = module._modules[part]
        return module

    def _module(self, path: str) -> nn.Module:
        if path not in self._modules:
            module = self._module_at(path.split("."))
            try:
                self._modules[path] = build(spec_of(module, path), path)
            except ModelInvalid:
                self._modules[path] = copy.deepcopy(module).to("meta").eval()
        return self._modules[path]


def _on_meta(value: object) -> object:
    return value.detach().to("meta") if torch.is_tensor(value) else value
