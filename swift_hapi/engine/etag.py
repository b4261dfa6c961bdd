"""Entity tags of feature responses and their comparison (RFC 9110, sections 8.8.3 and 13.1.2)."""

from __future__ import annotations

import hashlib
import re

from swift_hapi.protocol.headers import FeatureRequest
from swift_hapi.protocol.payload import canonical_json

_TAG = re.compile(r'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"')


def feature_etag(
    request: FeatureRequest, cut: str, source_etag: str, numerics: str, rows: int = 0
) -> str:
    """Tag of a feature response: everything that its meaning depends on.

    Weak, because the micro-batch may change the last bits of a float; strong where all
    micro-batches have the same size.

    :param request: with ``model`` already resolved to a digest
    :param cut: the resolved cut name
    :param rows: of every micro-batch, 0 where they vary
    """
    parts = [
        source_etag.strip().strip('"'),
        request.model,
        cut,
        "" if request.transform is None else str(request.transform),
        request.dtype,
        "" if request.samples is None else str(request.samples),
        request.on_error,
        request.encoding,
        numerics,
    ]
    if rows:
        parts.append(str(rows))
    weak = "" if rows else "W/"
    return f'{weak}"{hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:32]}"'


def matches(if_none_match: str | None, etag: str) -> bool:
    """Whether an ``If-None-Match`` value names ``etag`` (weak comparison, lists and ``*``)."""
    if if_none_match is None:
        return False
    if if_none_match.strip() == "*":
        return True
    found = _TAG.fullmatch(etag)
    return found is not None and found.group(1) in _TAG.findall(if_none_match)
