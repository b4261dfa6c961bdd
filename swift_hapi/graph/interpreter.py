"""Heads and tails: the two sides of a cut, ready to be called."""

from __future__ import annotations

import torch

from swift_hapi.graph import aliasing, ir
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.failures import is_allocation_failure
from swift_hapi.graph.program import Before, Program
from swift_hapi.protocol.errors import ModelInvalid, UndecodableSample

#: images run in channels_last
IMAGE_LAYOUT = (0, 2, 3, 1)


def _nodes_between(extractor: Extractor, start: str, end: str) -> tuple[ir.Node, ...]:
    """What has to run; constants are known already."""
    needed = ir.slice_to(extractor.graph.nodes, end, stop=start)
    return tuple(node for node in needed if node.name in extractor.dependent)


def _lay_out(x: torch.Tensor, layout: tuple[int, ...]) -> torch.Tensor:
    """``x`` with its dimensions in memory in the order ``layout``: kernels, and so the last bits
    of a result, depend on it."""
    laid = torch.empty_permuted(x.shape, layout, dtype=x.dtype, device=x.device)
    return x if x.stride() == laid.stride() else laid.copy_(x)


def _layout_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Dimensions from the outermost to the innermost in memory."""
    strides = tensor.stride()
    return tuple(sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], dim)))


def find_layouts(extractor: Extractor) -> dict[str, tuple[int, ...]]:
    """How the tensor at each cut lies in memory in an uncut run: tried out with two samples,
    because it depends on the kernels of the machine (meta tensors do not tell)."""
    device = next((t.device for t in extractor.tensors.values()), torch.device("cpu"))
    layouts = {}
    start = extractor.graph.input
    with torch.inference_mode():
        x = torch.zeros((2, *extractor.input_shape), dtype=extractor.dtype, device=device)
        if x.dim() == 4:
            x = _lay_out(x, IMAGE_LAYOUT)
        for cut in extractor.cuts:
            nodes = _nodes_between(extractor, start, cut.name)
            x = Program(nodes, start, cut.name, extractor.resolver, extractor.known)(x)
            layouts[cut.name] = _layout_of(x)
            start = cut.name
    return layouts


def _check_ids(extractor: Extractor, x: torch.Tensor) -> None:
    """:raises UndecodableSample: an id that the table does not have; looking it up would fail
    without saying where"""
    below = extractor.ids_below
    if below is None or not x.numel():
        return
    low, high = (int(v) for v in torch.aminmax(x))
    if low < 0 or high >= below:
        wrong = (x < 0) | (x >= below)
        row = int(wrong.flatten(1).any(1).nonzero()[0, 0])
        reason = f"id {int(x[row][wrong[row]][0])} is none of 0 to {below - 1}"
        raise UndecodableSample(f"row {row} of the batch: {reason}", row=row, reason=reason)


class Head:
    """The extractor from its input to ``cut``.

    Call it with x [n, *input_shape] in the extractor's input dtype; the result is
    [n, *cut.shape] as a fresh or shared tensor of unspecified memory layout. Runs under
    ``inference_mode``. Any number of threads may call it at once.
    """

    def __init__(self, extractor: Extractor, cut: Cut):
        self.cut = cut
        self._clone = False
        self._extractor = extractor
        graph = extractor.graph
        nodes = _nodes_between(extractor, graph.input, cut.name)
        if nodes:
            self._clone = aliasing.overwrites(nodes, graph.modules, [graph.input]) is not None
        self._program = Program(
            nodes, graph.input, cut.name, extractor.resolver, extractor.known
        )

    def __call__(self, x: torch.Tensor, before: Before | None = None) -> torch.Tensor:
        """
        :param before: called before every node; what it raises ends the run
        :raises ModelInvalid: the network does not run on these values
        """
        with torch.inference_mode():
            _check_ids(self._extractor, x)
            if x.dim() == 4:
                x = _lay_out(x, IMAGE_LAYOUT)
            try:
                return self._program(x.clone() if self._clone else x, before)
            except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
                if is_allocation_failure(error):
                    raise
                # What a run without values cannot show: an index out of range, say.
                raise ModelInvalid(
                    f"the network does not run up to cut '{self.cut.name}': {str(error)[:200]}"
                ) from error


class Tail:
    """The extractor from ``cut`` to its end, the freeze cut.

    Call it with features [n, *cut.shape] of the cut's dtype, in any memory layout; they are not
    changed.
    For the last cut it is the identity. Runs without gradients: under ``no_grad``, so that the
    result can be fed to layers in training, or under ``inference_mode`` if asked for.
    """

    def __init__(self, extractor: Extractor, cut: Cut, *, inference: bool = False):
        self.cut = cut
        self._extractor = extractor
        self._mode = torch.inference_mode if inference else torch.no_grad
        if extractor.layouts is None:
            extractor.layouts = find_layouts(extractor)
        self._layout = extractor.layouts[cut.name]
        graph = extractor.graph
        nodes = _nodes_between(extractor, cut.name, graph.output)
        self._clone = aliasing.overwrites(nodes, graph.modules, [cut.name]) is not None
        self._program = Program(nodes, cut.name, graph.output, extractor.resolver, extractor.known)

    def __call__(self, features: torch.Tensor) -> torch.Tensor:
        with self._mode():
            if self.cut.index == 0:
                _check_ids(self._extractor, features)
            x = _lay_out(features, self._layout)
            stuck = x.is_inference() and not torch.is_inference_mode_enabled()
            if x is features and (self._clone or stuck):
                # Tensors made in inference mode could not be trained on.
                x = x.clone()
            return self._program(x)
