"""The device that runs the network: this machine's CPUs, or one CUDA device."""

from __future__ import annotations

import gc

import torch

from swift_hapi.engine.budget import host_memory
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.failures import is_allocation_failure
from swift_hapi.graph.heap import Heap
from swift_hapi.graph.memory import HeadMemory
from swift_hapi.graph.program import Before

CHOICES = ("cpu", "cuda", "auto")


class AllocationFailed(Exception):
    """Memory could not be had; with less it may."""


class Device:
    """:param kind: ``cpu``, ``cuda`` or ``auto`` (cuda where there is one)
    :param number: which of several CUDA devices, counted round

    :raises ValueError: cuda is asked for and there is none
    """

    #: looks after the host's memory, if anybody does
    heap: Heap | None = None

    def __init__(self, kind: str = "cpu", number: int = 0):
        if kind == "auto":
            kind = "cuda" if torch.cuda.is_available() else "cpu"
        if kind == "cuda":
            if not torch.cuda.is_available():
                raise ValueError("device = cuda, but PyTorch finds no CUDA device")
            self._device = torch.device("cuda", number % torch.cuda.device_count())
        else:
            self._device = torch.device("cpu")
        self.kind = kind

    @property
    def name(self) -> str:
        return str(self._device)

    @property
    def memory(self) -> int:
        """Bytes that the device has in all."""
        if self.kind == "cuda":
            return torch.cuda.get_device_properties(self._device).total_memory
        return host_memory()

    def take(self, extractor: Extractor) -> Extractor:
        """The extractor with its weights on this device. Blocking.

        :raises AllocationFailed: no memory for them
        """
        try:
            return extractor.to(self._device)
        except (RuntimeError, MemoryError) as error:
            if is_allocation_failure(error):
                raise AllocationFailed(str(error)) from error
            raise

    def run(
        self,
        head,
        batch: torch.Tensor,
        memory: HeadMemory | None = None,
        before: Before | None = None,
    ) -> torch.Tensor:
        """``head(batch, before)``, from host memory to host memory. Blocking.

        :param memory: what it should take
        :param before: called before every node; what it raises ends the run
        """
        if self.kind == "cpu":
            return head(batch, self._watched(memory, len(batch), before))
        torch.cuda.reset_peak_memory_stats(self._device)
        return head(batch.to(self._device), before).cpu()

    def _watched(
        self, memory: HeadMemory | None, batch: int, before: Before | None
    ) -> Before | None:
        """``before``, with an eye on the host's memory."""
        if self.heap is None or memory is None:
            return before
        watch = self.heap.watch(memory, batch)
        if watch is None or before is None:
            return watch or before

        def both(at: int) -> None:
            before(at)
            watch(at)

        return both

    def peak(self, weight_bytes: int) -> int | None:
        """Most bytes that the last :meth:`run` had on the device beside ``weight_bytes``; None
        where the device does not count."""
        if self.kind == "cpu":
            return None
        return max(0, torch.cuda.max_memory_allocated(self._device) - weight_bytes)

    def release(self) -> None:
        """Give back what the device's allocator keeps for later."""
        if self.kind == "cuda":
            torch.cuda.empty_cache()

    def relieve(self) -> None:
        """After a failed allocation: give back everything that is not in use. Blocking."""
        gc.collect()  # errors hold on to the frames, and so the tensors, they passed through
        self.release()
        if self.heap is not None:
            self.heap.give_back()
