"""The device that runs the network: this machine's CPUs, or one CUDA device."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

from swift_hapi.engine.budget import host_memory
from swift_hapi.engine.heap import Heap
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.failures import is_allocation_failure

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
        activation_bytes: int = 0,
        before: Callable[[int], None] | None = None,
    ) -> torch.Tensor:
        """``head(batch, before)``, from host memory to host memory. Blocking.

        :param activation_bytes: what it should take
        :param before: called before every node; what it raises ends the run
        """
        if self.kind == "cpu":
            if self.heap is not None:
                self.heap.make_room(activation_bytes)
            return head(batch, before)
        torch.cuda.reset_peak_memory_stats(self._device)
        return head(batch.to(self._device), before).cpu()

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
