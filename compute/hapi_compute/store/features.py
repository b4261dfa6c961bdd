"""GET of features: nothing is handed on that is not what was asked for, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import zstandard

from hapi_compute.store.answer import Answer, bare_etag
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import Corrupted, PushdownUnavailable
from swift_hapi.protocol import digest, headers, payload
from swift_hapi.protocol.headers import FeatureRequest
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.wire import ARRAYS

#: room beside the features themselves for header, keys, index, label and error list
_OVERHEAD = 16 << 20
_ECHO = re.compile(r"(\d{1,9})-(\d{1,9})/(\d{1,9}|\*)")
_TIMING = re.compile(r"\s*([A-Za-z0-9_-]+)\s*;\s*dur=([0-9.]+)\s*")


@dataclass(frozen=True)
class FeatureStats:
    """What the storage tier says about one answer.

    ``bytes`` as they travelled; ``timings`` step to seconds from ``Server-Timing``;
    ``micro_batch`` samples run at once; ``total`` samples in the shard, None when not
    known; ``times`` as in :class:`~hapi_compute.store.answer.Answer`.
    """

    bytes: int
    timings: dict[str, float] = field(default_factory=dict)
    cache: str = ""
    micro_batch: int | None = None
    numerics: str = ""
    total: int | None = None
    times: tuple[float, float, float] = (0.0, 0.0, 0.0)


def get_features(
    client: SwiftClient,
    container: str,
    name: str,
    request: FeatureRequest,
    *,
    if_match: str | None = None,
    model_container: str | None = None,
    limits: Limits | None = None,
    attempts: int | None = None,
    sleep: Callable[[float], object] | None = None,
) -> tuple[payload.Features, FeatureStats]:
    """Features of one object.

    :param if_match: ETag that the object must have
    :param model_container: quoted ``[account/]container`` of the extractor file
    :raises PushdownUnavailable: the store answered with the object itself
    :raises Corrupted: length, digest, echo and payload do not agree, on every try
    :raises HapiError: what the filter's problem document says
    """
    wanted = request.to_headers()
    if model_container is not None:
        wanted[headers.MODEL_CONTAINER] = model_container
    limit = (limits or Limits()).max_output_bytes + _OVERHEAD
    what = f"features of {container}/{name}"
    verified: list[payload.Features] = []

    def check(answer: Answer) -> None:
        verified[:] = [verify(answer, request, if_match, limit, what)]

    answer = client.get(
        container,
        name,
        headers=wanted,
        if_match=if_match,
        check=check,
        attempts=attempts,
        sleep=sleep,
    )
    return verified[0], stats(answer)


def verify(
    answer: Answer, request: FeatureRequest, source_etag: str | None, limit: int, what: str
) -> payload.Features:
    """Check an answer against its request and decode it.

    :param limit: bytes that a decompressed payload may have
    :raises PushdownUnavailable, Corrupted, PayloadInvalid: see :func:`get_features`
    """
    if answer.headers.get("Content-Type") != headers.FEATURES_TYPE:
        raise PushdownUnavailable(
            f"{what}: the store sent the object itself; its proxy has no hapi filter"
        )
    if "Content-Length" not in answer.headers:
        raise Corrupted(f"{what}: no Content-Length")
    if not digest.matches(answer.headers.get(headers.CONTENT_DIGEST, ""), answer.body):
        raise Corrupted(f"{what}: the body does not have its Content-Digest")
    first, last, total = _check_echo(answer, request, source_etag, what)
    features = payload.decode(_identity(answer, limit, what))
    if digest.model_hex(request.model) and features.model != request.model:
        raise Corrupted(f"{what}: payload is of model {features.model}")
    if not request.split.isdigit() and features.cut != request.split:
        raise Corrupted(f"{what}: payload is of cut {features.cut}")
    _check_samples(features, first, last, total, request, what)
    return features


def _check_echo(
    answer: Answer, request: FeatureRequest, source_etag: str | None, what: str
) -> tuple[int, int, int | None]:
    def echo(header: str) -> str:
        return answer.headers.get(header, "").strip()

    expected = {headers.DTYPE: request.dtype}
    if digest.model_hex(request.model):
        expected[headers.MODEL] = request.model
    if not request.split.isdigit():
        expected[headers.SPLIT] = request.split
    for header, value in expected.items():
        if echo(header) != value:
            raise Corrupted(f"{what}: {header} is {echo(header)!r}, asked for {value!r}")
    if source_etag is not None and bare_etag(echo(headers.SOURCE_ETAG)) != source_etag:
        raise Corrupted(
            f"{what}: computed from {echo(headers.SOURCE_ETAG)!r}, asked for {source_etag!r}"
        )
    found = _ECHO.fullmatch(echo(headers.SAMPLES))
    if not found:
        raise Corrupted(f"{what}: {headers.SAMPLES} is {echo(headers.SAMPLES)!r}")
    total = None if found.group(3) == "*" else int(found.group(3))
    return int(found.group(1)), int(found.group(2)), total


def _check_samples(
    features: payload.Features,
    first: int,
    last: int,
    total: int | None,
    request: FeatureRequest,
    what: str,
) -> None:
    """Every sample asked for is there exactly once: in the tensor or among the errors."""
    if request.samples is not None:
        wanted = (request.samples.first, request.samples.last)
    else:
        wanted = (0, last if total is None else total - 1)
    index = features.index
    reported = {error.index for error in features.errors}
    there = set(index.tolist())
    if (
        (first, last) != wanted
        or np.any(np.diff(index) <= 0)
        or reported & there
        or reported | there != set(range(first, last + 1))
    ):
        raise Corrupted(
            f"{what}: samples {first}-{last}/{total}, asked for {wanted[0]}-{wanted[1]}; "
            f"{len(index)} came and {len(reported)} errors"
        )
    if features.features.dtype != ARRAYS[request.dtype]:
        raise Corrupted(f"{what}: features are {features.features.dtype}")


def _identity(answer: Answer, limit: int, what: str) -> bytes:
    coding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if coding == "identity":
        return answer.body
    if coding != "zstd":
        raise Corrupted(f"{what}: Content-Encoding {coding!r} was not asked for")
    try:
        # The size in the frame's header is trusted by decompress(), so look at it first.
        size = zstandard.frame_content_size(answer.body)
        if size > limit:
            raise Corrupted(f"{what}: decompresses to {size} bytes, more than {limit}")
        return zstandard.ZstdDecompressor().decompress(
            answer.body, max_output_size=limit, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise Corrupted(f"{what}: zstd: {error}") from None


def stats(answer: Answer) -> FeatureStats:
    """Read the informative headers; none of them is needed for correctness."""
    timings = {}
    for item in answer.headers.get(headers.SERVER_TIMING, "").split(","):
        found = _TIMING.fullmatch(item)
        if found:
            timings[found.group(1)] = float(found.group(2)) / 1000
    micro_batch = answer.headers.get(headers.BATCH_SIZE, "")
    echo = _ECHO.fullmatch(answer.headers.get(headers.SAMPLES, "").strip())
    return FeatureStats(
        bytes=len(answer.body),
        timings=timings,
        cache=answer.headers.get(headers.CACHE, ""),
        micro_batch=int(micro_batch) if micro_batch.isdigit() else None,
        numerics=answer.headers.get(headers.NUMERICS, ""),
        total=int(echo.group(3)) if echo and echo.group(3) != "*" else None,
        times=answer.times,
    )
