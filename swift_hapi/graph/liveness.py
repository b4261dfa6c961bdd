"""Memory that a head takes, followed on meta tensors: what is alive, and what each node makes.

The head runs as it does in earnest, values dropped at their last use, but on tensors without
memory; every operation that torch runs is seen, those within modules too. Storages count, not
tensors: views take nothing. One walk serves all batches, because sizes are proportional to the
batch (``numbers.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from swift_hapi.graph import aliasing, ir
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.dryrun import resolver
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.nested import tensors_in
from swift_hapi.graph.program import Program
from swift_hapi.protocol.errors import ModelInvalid

#: samples in the walk; two, because one would let dimensions be taken for others
_BATCH = 2
#: So many storages are looked through whenever the peak may have grown. Where more are alive,
#: which no known network needs, they are only when it may have grown by this part of it.
_FEW = 256
_SLACK = 1 / 256


@dataclass(frozen=True)
class LiveProfile:
    """Bytes alive for one sample, input and output included, weights not.

    :param peak: at most
    :param steps: what each node in turn makes. Memory may grow by that, because a heap cannot be
        relied on to have a place for the next block where the last one was freed.
    """

    peak: int
    steps: tuple[int, ...]


class _Live(TorchDispatchMode):
    """Sums what is alive; constants and weights are not counted."""

    def __init__(self):
        super().__init__()
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        #: no less than what is alive
        self._sum = 0
        self._made = 0  # in the node that runs
        self._steps: list[int] = []
        self.peak = 0

    def hold(self, tensor: torch.Tensor) -> None:
        """Count a tensor that was there before."""
        self._add(tensor)
        self._look()

    def before(self, at: int) -> None:
        """Node ``at`` begins."""
        if at:
            self._steps.append(self._made)
        self._made = 0

    def made(self) -> list[int]:
        """Bytes by node, after the last one."""
        return [*self._steps, self._made]

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        known = self._alive.get(storage._cdata)
        if known is not None and not known[0].expired():
            return
        self._alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self._sum += storage.nbytes() - (known[1] if known else 0)
        self._made += storage.nbytes()

    def _look(self) -> None:
        # Where very much is alive, looking through it at every operation would not be linear.
        slack = 0 if len(self._alive) <= _FEW else self.peak * _SLACK
        if self._sum <= self.peak + slack:
            return
        self._alive = {k: v for k, v in self._alive.items() if not v[0].expired()}
        self._sum = sum(size for _, size in self._alive.values())
        self.peak = max(self.peak, int(self._sum + slack))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        known = {t.untyped_storage()._cdata for t in tensors_in((args, kwargs))}
        for tensor in tensors_in(out):
            # A result in the memory of a weight is a view of it.
            if tensor.untyped_storage()._cdata not in known:
                self._add(tensor)
        self._look()
        return out


def live_profile(
    extractor: Extractor, cut: Cut, input_shape: tuple[int, ...] | None = None
) -> LiveProfile:
    """What is alive while the head up to ``cut`` runs.

    :raises ModelInvalid: the extractor does not run on that input shape
    """
    shape = (_BATCH, *(input_shape or extractor.input_shape))
    x = torch.empty(shape, dtype=extractor.dtype, device="meta")
    if x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    live = _Live()
    live.hold(x)
    if not cut.index:
        return LiveProfile(_per_sample(live.peak), ())
    graph = extractor.graph
    needed = ir.slice_to(graph.nodes, cut.name, stop=graph.input)
    nodes = [node for node in needed if node.name in extractor.dependent]
    resolve = resolver(extractor.meta)
    program = Program(nodes, graph.input, cut.name, resolve, _constants(extractor))
    given = x
    if aliasing.overwrites(nodes, graph.modules, [graph.input]) is not None:
        x = x.clone()  # the head does not change the batch it is given
        live.hold(x)
    try:
        # What makes a tensor without saying where must not make it in real memory.
        with torch.no_grad(), torch.device("meta"), live:
            program(x, live.before)
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        shown = "x".join(map(str, given.shape[1:]))
        raise ModelInvalid(f"it does not run on input {shown}: {str(error)[:200]}") from error
    return LiveProfile(_per_sample(live.peak), tuple(map(_per_sample, live.made())))


def _per_sample(nbytes: int) -> int:
    return -(-nbytes // _BATCH)


def _constants(extractor: Extractor) -> dict[str, object]:
    """Values on the meta device of the nodes that do not depend on the input."""
    resolve, values = resolver(extractor.meta), {}
    with torch.no_grad(), torch.device("meta"):
        for node in extractor.graph.nodes:
            if node.name in extractor.dependent:
                continue
            if node.op == ir.ATTR:
                values[node.name] = extractor.meta.tensors[node.target]
            else:
                values[node.name] = Program([node], "", node.name, resolve, values)(None)
    return values
