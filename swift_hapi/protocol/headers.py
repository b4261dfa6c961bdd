"""Names and parsing of the ``X-Hapi-*`` request headers. Pure stdlib; used by every tier."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from swift_hapi.protocol.digest import model_hex
from swift_hapi.protocol.errors import BadHeader
from swift_hapi.protocol.transform import TransformSpec, parse_transform

MODEL = "X-Hapi-Model"
SPLIT = "X-Hapi-Split"
TRANSFORM = "X-Hapi-Transform"
SAMPLES = "X-Hapi-Samples"
DTYPE = "X-Hapi-Dtype"
BATCH_SIZE = "X-Hapi-Batch-Size"
ON_ERROR = "X-Hapi-On-Error"
MODEL_CONTAINER = "X-Hapi-Model-Container"

# Response only.
CACHE = "X-Hapi-Cache"
NUMERICS = "X-Hapi-Numerics"
SOURCE_ETAG = "X-Hapi-Source-Etag"
CONTENT_DIGEST = "Content-Digest"
SERVER_TIMING = "Server-Timing"

DEADLINE = "X-Hapi-Deadline"  #: seconds after which nobody waits for the answer any more

# Between filter and engine only; the filter never passes a client's own on.
ACCOUNT = "X-Hapi-Account"  #: account the work is charged to
OBJECT = "X-Hapi-Object"  #: quoted path of the source object, for messages
MODEL_MD5 = "X-Hapi-Model-Md5"  #: md5 of an extractor file's bytes, hex
MODEL_SCOPE = "X-Hapi-Model-Scope"  #: ``operator`` (open to all) or ``account``
TRANS_ID = "X-Trans-Id"

FEATURES_TYPE = "application/vnd.hapi.features+safetensors"
DEFAULT_MODEL_CONTAINER = "hapi-models"
#: of features; :mod:`swift_hapi.protocol.wire` says what they mean
FEATURE_DTYPES = ("float32", "float16", "int8")
DTYPES = (*FEATURE_DTYPES, "uint8")
ENCODINGS = ("identity", "zstd")
ON_ERROR_CHOICES = ("fail", "report")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_CUT = re.compile(r"\d{1,6}|[A-Za-z_][A-Za-z0-9_]{0,254}")
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")


@dataclass(frozen=True)
class SampleRange:
    """Inclusive range of sample indices within a shard."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True)
class FeatureRequest:
    """The HAPI parameters of one GET, validated.

    ``model`` is ``sha256:<hex>`` or a name; ``split`` a cut name or decimal index;
    ``batch_size`` an upper bound for the micro-batch in samples; ``encoding`` one of
    :data:`ENCODINGS`.
    """

    model: str
    split: str
    transform: TransformSpec | None = None
    samples: SampleRange | None = None
    dtype: str = "float32"
    batch_size: int | None = None
    on_error: str = "fail"
    encoding: str = "identity"

    @classmethod
    def from_headers(cls, get: Callable[[str], str | None]) -> FeatureRequest:
        """Parse a request.

        :param get: looks a header up by name (any case), None when absent
        :raises BadHeader: naming the header at fault
        """
        return cls(
            model=_model(get(MODEL)),
            split=_split(get(SPLIT)),
            transform=_optional(get(TRANSFORM), parse_transform),
            samples=_optional(get(SAMPLES), _samples),
            dtype=_one_of(DTYPE, get(DTYPE), DTYPES),
            batch_size=_optional(get(BATCH_SIZE), _batch_size),
            on_error=_one_of(ON_ERROR, get(ON_ERROR), ON_ERROR_CHOICES),
            encoding=negotiate_encoding(get("Accept-Encoding")),
        )

    def to_headers(self) -> dict[str, str]:
        """The headers that :meth:`from_headers` reads back as an equal request."""
        headers = {MODEL: self.model, SPLIT: self.split}
        if self.transform is not None:
            headers[TRANSFORM] = str(self.transform)
        if self.samples is not None:
            headers[SAMPLES] = str(self.samples)
        if self.batch_size is not None:
            headers[BATCH_SIZE] = str(self.batch_size)
        headers[DTYPE] = self.dtype
        headers[ON_ERROR] = self.on_error
        headers["Accept-Encoding"] = self.encoding
        return headers

    def with_model(self, digest: str) -> FeatureRequest:
        return replace(self, model=digest)


def parse_deadline(value: str | None, most: float) -> float:
    """Seconds: what ``X-Hapi-Deadline`` asks for, but no more than ``most``.

    :raises BadHeader: it is no number of seconds above 0
    """
    if value is None:
        return most
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise BadHeader(f"{DEADLINE}: {value!r} is no number of seconds above 0")
    return min(most, seconds)


def _optional(value: str | None, parse):
    return None if value is None else parse(value)


def _model(value: str | None) -> str:
    value = (value or "").strip()
    if model_hex(value) or (_NAME.fullmatch(value) and not value.startswith("sha256")):
        return value
    raise BadHeader(
        f"{MODEL}: {value!r} is neither sha256:<64 lower-case hex digits> nor a model name"
    )


def _split(value: str | None) -> str:
    if value is None:
        raise BadHeader(f"{SPLIT} is missing: name a cut of the extractor, or its index")
    if not _CUT.fullmatch(value.strip()):
        raise BadHeader(f"{SPLIT}: {value!r} is neither a cut name nor an index")
    return value.strip()


def _samples(value: str) -> SampleRange:
    found = _RANGE.fullmatch(value.strip())
    if not found or int(found.group(1)) > int(found.group(2)):
        raise BadHeader(f"{SAMPLES}: {value!r} is not an inclusive range a-b with a <= b")
    return SampleRange(int(found.group(1)), int(found.group(2)))


def _batch_size(value: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,5}", value.strip()):
        raise BadHeader(f"{BATCH_SIZE}: {value!r} is not an integer from 1 to 999999")
    return int(value)


def _one_of(header: str, value: str | None, choices: tuple[str, ...]) -> str:
    if value is None:
        return choices[0]
    if value.strip() not in choices:
        raise BadHeader(f"{header}: {value!r} is none of {', '.join(choices)}")
    return value.strip()


def negotiate_encoding(value: str | None) -> str:
    """``zstd`` when ``Accept-Encoding`` (RFC 9110 section 12.5.3) names it with q > 0."""
    for item in (value or "").split(","):
        coding, _, parameters = item.partition(";")
        if coding.strip().lower() == "zstd":
            quality = parameters.strip().lower().removeprefix("q=").strip()
            return "identity" if re.fullmatch(r"0(\.0*)?", quality) else "zstd"
    return "identity"
