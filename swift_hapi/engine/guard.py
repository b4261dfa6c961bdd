"""Work that ends when its client leaves or its time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from swift_hapi.protocol.errors import DeadlineExceeded

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed its connection; nobody waits for an answer."""


async def guarded(work: Coroutine[None, None, T], gone: asyncio.Event, seconds: float) -> T:
    """Result of ``work``, unless the client leaves or ``seconds`` pass first.

    ``work`` is cancelled then, and has come to its end when this returns.

    :raises ClientGone: ``gone`` was set
    :raises DeadlineExceeded: time is up
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(gone.wait())
    try:
        await asyncio.wait({task, watch}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if watch.done():
            raise ClientGone
        raise DeadlineExceeded(f"not done within {seconds:.6g} seconds")
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # fetched, so that asyncio does not report it as lost
