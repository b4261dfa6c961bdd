"""Sees every tensor that a dry run makes, also inside of modules, and counts."""

from __future__ import annotations

import functools
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from swift_hapi.graph.caps import MAX_HANDLED, MAX_RANK, Caps
from swift_hapi.graph.effort import effort
from swift_hapi.graph.isolation import Isolation
from swift_hapi.graph.kernels import check_call
from swift_hapi.graph.work import work
from swift_hapi.protocol.errors import ModelInvalid


class _Idle(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@functools.cache
def _make_ready() -> None:
    """Have torch import what it needs for its first run of this kind: it takes a second, and no
    graph is to be blamed for that."""
    with torch.device("meta"), _Idle():
        torch.empty(1).sigmoid()


class Watch(TorchDispatchMode):
    """
    :param batch: samples in the run; limits are per sample
    :param isolation: follows the samples of the batch, if it is to be shown that they stay apart;
        the graph may go to the storage side then, so its numbers are looked at, too

    ``flops``, ``effort`` and ``handled`` count from the start; ``constant_flops`` and
    ``constant_bytes`` only while ``constant`` is set.
    """

    def __init__(self, batch: int, caps: Caps, isolation: Isolation | None = None):
        super().__init__()
        self._batch = batch
        self._caps = caps
        self._isolation = isolation
        self.constant = False
        self.effort = 0
        self.handled = 0
        _make_ready()
        self._until = time.thread_time() + caps.seconds
        self.flops = self._before = 0
        self.constant_flops = 0
        self.constant_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._isolation is not None:
            check_call(func, args, kwargs)
            self._isolation.before(func, args)
        out = func(*args, **kwargs)
        outputs = tuple(t for t in _flat(out) if torch.is_tensor(t))
        self._count(func, args, kwargs, out, outputs)
        if self._isolation is not None:
            self._isolation.follow(func, args, kwargs, outputs)
        return out

    def next_node(self) -> None:
        self._before = self.flops

    def check_time(self) -> None:
        """:raises ModelInvalid: the run has taken too long already"""
        if time.thread_time() > self._until:
            raise ModelInvalid("it takes too long to find its shapes")

    def _count(self, func, args, kwargs, out, outputs) -> None:
        self.check_time()
        caps = self._caps
        limit = caps.tensor_bytes * self._batch
        self.handled += len(outputs) + sum(map(_tensors_in, (*args, *kwargs.values())))
        if self.handled > MAX_HANDLED:
            raise ModelInvalid(f"operations take and give more than {MAX_HANDLED} tensors")
        for tensor in outputs:
            if tensor.dim() > MAX_RANK:
                raise ModelInvalid(f"a tensor of more than {MAX_RANK} dimensions")
            if tensor.nbytes > limit:
                raise ModelInvalid(
                    f"a tensor of shape {list(tensor.shape)}, more than {limit} bytes"
                )
        self.effort += effort(func.overloadpacket.__name__, len(outputs))
        if self.effort > caps.effort:
            raise ModelInvalid("too many tensors are made on the way, or by slow operations")
        cost = work(func, args, kwargs, out, outputs)
        if self.constant:
            self.constant_flops += cost
            self.constant_bytes += sum(tensor.nbytes for tensor in outputs)
            if self.constant_flops > caps.constant_flops:
                raise ModelInvalid("too much is computed from weights alone")
            if self.constant_bytes > caps.constant_bytes:
                raise ModelInvalid(
                    "too much memory is needed for what is made of weights alone"
                )
        else:
            self.flops += cost
            if self.flops > caps.flops * self._batch:
                raise ModelInvalid(f"more than {caps.flops:.3g} operations per sample")
            if self.flops - self._before > caps.node_flops * self._batch:
                raise ModelInvalid(f"more than {caps.node_flops:.3g} operations in one node")


def _tensors_in(value) -> int:
    if isinstance(value, (tuple, list)):
        return sum(map(_tensors_in, value))
    return int(torch.is_tensor(value))


def _flat(value):
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _flat(item)
    else:
        yield value
