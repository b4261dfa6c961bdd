"""The engine's threads. Nothing that blocks or computes runs on the event loop.

One thread runs networks (torch's own threads are behind it; a long run makes way for others), one
loads and checks models, in turns for each account, ``decoders`` threads decode samples, and a few
move bytes (files, digests, encoding).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

import torch

from swift_hapi.engine.network import Network
from swift_hapi.engine.turns import Turns
from swift_hapi.samples.room import Room

T = TypeVar("T")
_IO_THREADS = 4
#: By how much decoding yields to the network: one slow member holds up torch's whole team, and two
#: that take turns on one core wash each other's data out of its cache.
_DECODE_NICE = 10
#: For each decoding thread: a picture of 16 million pixels. What takes more than all threads have
#: is decoded alone.
DECODE_BYTES = 128 << 20


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


def _yield_to_others() -> None:
    """Linux keeps a niceness for each thread."""
    thread = threading.get_native_id()
    niceness = os.getpriority(os.PRIO_PROCESS, thread)
    os.setpriority(os.PRIO_PROCESS, thread, min(19, niceness + _DECODE_NICE))


class Workers:
    """:param cpus: torch's threads for one operation; ``decoders``: decoding threads"""

    def __init__(self, cpus: int, decoders: int):
        self.cpus = cpus
        self.decoders = decoders

        # Each thread that enters torch has a team of its own, sized when it first does so.
        def limit() -> None:
            torch.set_num_threads(cpus)

        self.infer = Network(ThreadPoolExecutor(1, "infer", initializer=limit))
        self.load = Turns(ThreadPoolExecutor(1, "load", initializer=limit))
        self.decode = ThreadPoolExecutor(decoders, "decode", initializer=_yield_to_others)
        #: what decoding threads share
        self.pixels = Room(decoders * DECODE_BYTES)
        self.io = ThreadPoolExecutor(_IO_THREADS, "io")

    def shutdown(self) -> None:
        """Drop what is queued; threads end with what they run."""
        for executor in (self.infer, self.load, self.decode, self.io):
            executor.shutdown(wait=False, cancel_futures=True)
