"""Eventlet's primitives, taken from Swift where Swift offers them.

Swift gathers what it needs of eventlet in ``swift.common.concurrency`` since 2.38 and may put
something else behind it later; older releases have only eventlet itself.
"""

try:
    from swift.common.concurrency import (
        Semaphore,
        Timeout,
        green_http_client,
        patcher,
        sleep,
        socket,
        spawn,
        trampoline,
    )
except ImportError:
    from eventlet import Timeout, patcher, sleep, spawn
    from eventlet.green import socket
    from eventlet.green.http import client as green_http_client
    from eventlet.hubs import trampoline
    from eventlet.semaphore import Semaphore

__all__ = [
    "Semaphore",
    "Timeout",
    "green_http_client",
    "patcher",
    "sleep",
    "socket",
    "spawn",
    "trampoline",
]
