"""Several processes that train one model, as ``torchrun`` starts them.

Only what training needs: who we are, sums over all ranks, and work that the first rank does for
everybody. One process alone is a world of one, in which all of this costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from hapi_compute.train.errors import OtherRankFailed
from swift_hapi.protocol.errors import HapiError

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """Rank ``rank`` of ``size``, computing on ``device``."""

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")

    @property
    def first(self) -> bool:
        """Whether this is the rank that uploads, writes and prints."""
        return self.rank == 0

    def add_up(self, values: Sequence[float]) -> list[float]:
        """Element-wise sums over all ranks; a collective call."""
        if self.size == 1:
            return [float(value) for value in values]
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return sums.tolist()

    def add_up_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, on the CPU; a collective call."""
        if self.size == 1:
            return tensor
        sums = tensor.to(self.device)
        dist.all_reduce(sums)
        return sums.cpu()

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in order of ranks; a collective call."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value)
        return found

    def on_first(self, work: Callable[[], T]) -> T:
        """The first rank's ``work()``, on every rank; a collective call.

        :raises OtherRankFailed: on the others, where the first rank raised something else
        """
        if self.size == 1:
            return work()
        message: list[Any] = [None, None]
        failure: BaseException | None = None
        if self.first:
            try:
                message[0] = work()
            except (HapiError, OSError, ValueError) as error:
                failure, message[1] = error, str(error)
        dist.broadcast_object_list(message, src=0)
        if failure is not None:
            raise failure
        if message[1] is not None:
            raise OtherRankFailed(message[1])
        return message[0]

    def from_first(self, number: int) -> int:
        """The first rank's ``number``; a collective call."""
        if self.size == 1:
            return number
        told = torch.tensor(number, device=self.device)
        dist.broadcast(told, src=0)
        return int(told)

    def align_buffers(self, module: nn.Module) -> None:
        """Give all ranks the first one's running statistics; a collective call."""
        if self.size > 1:
            for buffer in module.buffers():
                dist.broadcast(buffer, src=0)

    def wrap(self, module: nn.Module) -> nn.Module:
        """``module`` with gradients averaged over the ranks, beginning from the first one's
        weights."""
        if self.size == 1:
            return module
        return nn.parallel.DistributedDataParallel(module)


def find_device(asked: str) -> torch.device:
    """``auto``: a GPU where there is one.

    :raises ValueError: there is no such device
    """
    if asked == "cpu" or (asked == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError(f"device={asked!r}: this machine, or this torch, has no CUDA device")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    count = torch.cuda.device_count()
    if local >= count:
        raise ValueError(f"device={asked!r}: process {local} here has none of the {count} GPUs")
    return torch.device("cuda", local)


@contextmanager
def joined(device: str = "cpu") -> Iterator[World]:
    """The world that the environment describes (``torchrun`` sets ``RANK``, ``WORLD_SIZE``,
    ``MASTER_ADDR`` and ``MASTER_PORT``), or one that was joined before.

    Ranks talk by gloo on CPUs and by NCCL on GPUs.

    :raises OtherRankFailed: one has ended, and does not answer any more
    """
    where = find_device(device)
    if where.type == "cuda":
        torch.cuda.set_device(where)
    if dist.is_available() and dist.is_initialized():
        yield World(dist.get_rank(), dist.get_world_size(), where)
        return
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or "RANK" not in os.environ:
        yield World(device=where)
        return
    dist.init_process_group("nccl" if where.type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), size, where)
    except RuntimeError as error:
        if not _lost(error):
            raise
        raise OtherRankFailed("another rank has ended") from None
    finally:
        dist.destroy_process_group()


def _lost(error: RuntimeError) -> bool:
    """Whether it tells of a rank that does not answer; gloo has no type for that."""
    if isinstance(error, dist.DistError):
        return True
    return any(words in str(error) for words in ("closed by peer", "reset by peer", "gloo"))
