"""Headers and body of a feature response."""

from __future__ import annotations

import numpy as np
import zstandard

from swift_hapi.engine.compute import Extracted
from swift_hapi.protocol import headers, payload
from swift_hapi.protocol.digest import content_digest
from swift_hapi.protocol.headers import FeatureRequest

#: Request headers that the response depends on.
VARY = ", ".join(
    (
        "Accept-Encoding",
        headers.MODEL,
        headers.MODEL_CONTAINER,
        headers.SPLIT,
        headers.TRANSFORM,
        headers.SAMPLES,
        headers.DTYPE,
        headers.BATCH_SIZE,
        headers.ON_ERROR,
    )
)
#: Higher levels make features no smaller.
_ZSTD_LEVEL = 1


def common_headers(
    request: FeatureRequest, cut: str, etag: str, source_etag: str, numerics: str
) -> dict[str, str]:
    """What a 200, a 304 and the answer to HEAD have in common.

    :param request: with ``model`` resolved to a digest
    :param cut: the resolved cut name
    """
    common = {
        "ETag": etag,
        "Vary": VARY,
        headers.NUMERICS: numerics,
        headers.SOURCE_ETAG: source_etag,
        headers.MODEL: request.model,
        headers.SPLIT: cut,
        headers.DTYPE: request.dtype,
        headers.CACHE: "miss",
    }
    if request.encoding != "identity":
        common["Content-Encoding"] = request.encoding
    return common


def encode(extracted: Extracted, request: FeatureRequest, cut: str) -> tuple[bytes, str]:
    """(body as it is sent, its ``Content-Digest``); blocking."""
    body = payload.encode(
        payload.Features(
            features=extracted.features,
            index=np.array([sample.index for sample in extracted.samples], dtype=np.int64),
            label=np.array([sample.label for sample in extracted.samples], dtype=np.int64),
            keys=tuple(sample.key for sample in extracted.samples),
            cut=cut,
            model=request.model,
            errors=extracted.errors,
        )
    )
    if request.encoding == "zstd":
        body = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(body)
    return body, content_digest(body)
