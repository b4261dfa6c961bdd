"""``Content-Digest`` (RFC 9530) with sha-256, and the digests that name extractor files."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

_SHA256 = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")
_MODEL = re.compile(r"sha256:([0-9a-f]{64})")


def content_digest(body: bytes | memoryview) -> str:
    """Value of ``Content-Digest`` for ``body`` as it is sent (after content coding)."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


def matches(header: str, body: bytes | memoryview) -> bool:
    """Whether ``header`` (a ``Content-Digest`` value) carries the sha-256 of ``body``."""
    found = _SHA256.search(header)
    if not found:
        return False
    try:
        expected = base64.b64decode(found.group(1), validate=True)
    except binascii.Error:
        return False
    return expected == hashlib.sha256(body).digest()


def model_hex(reference: str) -> str | None:
    """The 64 hex digits of ``sha256:<hex>``, or None when ``reference`` is not of that form."""
    found = _MODEL.fullmatch(reference)
    return found.group(1) if found else None
