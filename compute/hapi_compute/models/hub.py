"""Hugging Face's hub, where timm's weights come from."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

#: seconds for a connection before the hub counts as out of reach
_TIMEOUT = 5.0


@contextmanager
def cache_only_if_out_of_reach() -> Iterator[str | None]:
    """Within, the hub's library asks its cache alone where the hub does not answer: by itself it
    would try every file for half a minute. Gives the reason, or None."""
    from huggingface_hub import constants

    reason = _out_of_reach(constants.ENDPOINT)
    if reason is None:
        yield None
        return
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield reason
    finally:
        constants.HF_HUB_OFFLINE = before


def _out_of_reach(endpoint: str) -> str | None:
    url = urlsplit(endpoint)
    if url.hostname is None or urllib.request.getproxies().get(url.scheme):
        return None  # A proxy knows more than we can find out.
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        socket.create_connection((url.hostname, port), _TIMEOUT).close()
    except OSError as error:
        return f"cannot connect to {endpoint}: {error.strerror or error}"
    return None
