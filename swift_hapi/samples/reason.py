"""What a library says of a damaged sample, fit for users."""

from __future__ import annotations

import re

_MOST = 200
_ADDRESS = re.compile(r"<([\w.]+) object at 0x[0-9a-fA-F]+>")


def reason(error: Exception) -> str:
    """The error's text without addresses of this process's memory; its type when it has none."""
    return _ADDRESS.sub(r"<\1>", str(error))[:_MOST] or type(error).__name__
