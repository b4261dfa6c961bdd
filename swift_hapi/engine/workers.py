"""The engine's threads. Nothing that blocks or computes runs on the event loop.

One thread runs the network (torch's own threads are behind it), one loads and checks models,
``decode_threads`` decode samples, and a few move bytes (files, digests, encoding).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
_IO_THREADS = 4


async def call(executor: Executor, function: Callable[..., T], *args) -> T:
    """``function(*args)`` on ``executor``.

    A caller that is cancelled takes its work out of the executor's queue; work that runs already
    is waited for, because its buffers stay in use until it returns.
    """
    future = executor.submit(function, *args)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if not future.cancel() and not future.done():
            await asyncio.wait({asyncio.wrap_future(future)})
        raise


class Workers:
    """:param cpus: torch's threads for one operation; ``decoders``: decoding threads"""

    def __init__(self, cpus: int, decoders: int):
        # Each thread that enters torch has a team of its own, sized when it first does so.
        def limit() -> None:
            torch.set_num_threads(cpus)

        self.infer = ThreadPoolExecutor(1, "infer", initializer=limit)
        self.load = ThreadPoolExecutor(1, "load", initializer=limit)
        self.decode = ThreadPoolExecutor(decoders, "decode")
        self.io = ThreadPoolExecutor(_IO_THREADS, "io")

    def shutdown(self) -> None:
        """Drop what is queued; threads end with what they run."""
        for executor in (self.infer, self.load, self.decode, self.io):
            executor.shutdown(wait=False, cancel_futures=True)
