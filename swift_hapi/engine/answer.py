"""Headers and body of a feature response."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

import zstandard

from swift_hapi.engine.job import Extracted
from swift_hapi.graph.packing import pack
from swift_hapi.protocol import headers, payload
from swift_hapi.protocol.errors import DtypeOverflow
from swift_hapi.protocol.headers import FeatureRequest
from swift_hapi.protocol.payload import SampleError
from swift_hapi.protocol.wire import LOSSY, Packed

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


@dataclass(frozen=True)
class Body:
    """A response as it is sent: ``pieces`` of ``length`` bytes in all, with the value of their
    ``Content-Digest``."""

    pieces: list[bytes | memoryview]
    length: int
    digest: str


def encode(extracted: Extracted, request: FeatureRequest, cut: str) -> Body:
    """The body; as float32 without a content coding the features are not copied. Blocking.

    :raises DtypeOverflow: features do not fit into the dtype asked for
    """
    extracted, packed = _pack(extracted, request)
    pieces = payload.pieces(
        payload.Features(
            features=packed.rows,
            index=extracted.index,
            label=extracted.label,
            keys=extracted.keys,
            cut=cut,
            model=request.model,
            errors=extracted.errors,
            scale=packed.scale,
            zero=packed.zero,
        )
    )
    if request.encoding == "zstd":
        pieces = _compress(pieces)
    sha256 = hashlib.sha256()
    for piece in pieces:
        sha256.update(piece)
    digest = f"sha-256=:{base64.b64encode(sha256.digest()).decode()}:"
    return Body(pieces, sum(map(len, pieces)), digest)


def _pack(extracted: Extracted, request: FeatureRequest) -> tuple[Extracted, Packed]:
    if request.dtype not in LOSSY:
        return extracted, Packed(extracted.features)
    packed, bad = pack(extracted.features, request.dtype)
    if not bad:
        return extracted, packed
    reason = f"features do not fit into {request.dtype}"
    index, keys = extracted.index, extracted.keys
    if request.on_error != "report":
        sample, key = int(index[bad[0]]), keys[bad[0]]
        raise DtypeOverflow(
            f"sample {sample} ({key}): {reason}", sample=sample, key=key, reason=reason
        )
    errors = [SampleError(int(index[at]), keys[at], reason) for at in bad]
    good = sorted(set(range(len(keys))) - set(bad))
    left = Extracted(
        features=extracted.features[good],
        index=index[good],
        label=extracted.label[good],
        keys=tuple(keys[at] for at in good),
        errors=tuple(sorted((*extracted.errors, *errors), key=lambda error: error.index)),
    )
    ranges = (None if each is None else each[good] for each in (packed.scale, packed.zero))
    return left, Packed(packed.rows[good], *ranges)


def _compress(pieces: list[bytes | memoryview]) -> list[bytes]:
    # The size lets whoever reads it allocate once.
    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
    stream = compressor.compressobj(size=sum(map(len, pieces)))
    return [*(stream.compress(piece) for piece in pieces), stream.flush()]
