"""The feature payload: one safetensors blob with exactly one metadata key, ``hapi``.

Tensors: ``features`` [n, ...], ``index`` int64 [n] (position within the shard) and ``label``
int64 [n] (-1 = unknown); for int8 ``scale`` and ``zero`` (:mod:`swift_hapi.protocol.wire`). The
``hapi`` metadata is canonical JSON (sorted, compact): with more than one metadata key the bytes
that safetensors writes are not deterministic.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field

import numpy as np
import safetensors
import safetensors.numpy

from swift_hapi.protocol.errors import HapiError
from swift_hapi.protocol.wire import Packed, ranges_shape

VERSION = 1
_MAX_HEADER = 64 << 20
#: numpy's names of the types that a payload may hold -> safetensors'
_DTYPES = {"<f4": "F32", "<f2": "F16", "|i1": "I8", "|u1": "U8", "<i8": "I64"}


class PayloadInvalid(HapiError):
    """A feature payload does not have the form described here; detail says where."""

    name = "payload-invalid"
    status = 502
    retryable = True


@dataclass(frozen=True)
class SampleError:
    """One sample left out under ``X-Hapi-On-Error: report``."""

    index: int
    key: str
    reason: str


@dataclass(frozen=True)
class Features:
    """Decoded payload.

    ``features`` [n, ...] as they travel, with ``scale`` and ``zero`` where they are int8;
    ``index`` and ``label`` int64 [n]; ``keys`` n strings in the same order; ``errors`` the samples
    left out.
    """

    features: np.ndarray
    index: np.ndarray
    label: np.ndarray
    keys: tuple[str, ...]
    cut: str
    model: str
    errors: tuple[SampleError, ...] = field(default=())
    scale: np.ndarray | None = None
    zero: np.ndarray | None = None

    @property
    def packed(self) -> Packed:
        return Packed(self.features, self.scale, self.zero)

    def __len__(self) -> int:
        return len(self.keys)


def canonical_json(value) -> str:
    """JSON with sorted keys, no blanks and no NaN: equal values give equal strings."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def pieces(payload: Features) -> list[bytes | memoryview]:
    """The blob in pieces, of which the large one is the memory of ``payload.features`` itself
    (if that is contiguous); deterministic for equal input.

    The order is that of the safetensors library: larger elements first, then by name.
    """
    metadata = {
        "version": VERSION,
        "cut": payload.cut,
        "model": payload.model,
        "keys": list(payload.keys),
        "errors": [[e.index, e.key, e.reason] for e in payload.errors],
    }
    tensors = {
        "index": np.asarray(payload.index, dtype=np.int64),
        "label": np.asarray(payload.label, dtype=np.int64),
        "features": np.ascontiguousarray(payload.features),
    }
    if payload.scale is not None:
        tensors["scale"], tensors["zero"] = payload.scale, payload.zero
    names = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    header: dict[str, object] = {"__metadata__": {"hapi": canonical_json(metadata)}}
    at = 0
    for name in names:
        tensor = tensors[name]
        end = at + tensor.nbytes
        header[name] = {
            "dtype": _DTYPES[tensor.dtype.str],
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    bodies = [memoryview(tensors[name].reshape(-1).view(np.uint8)) for name in names]
    return [struct.pack("<Q", len(text)) + text, *bodies]


def encode(payload: Features) -> bytes:
    """Serialise into one blob."""
    return b"".join(pieces(payload))


def read_metadata(blob: bytes | memoryview) -> dict:
    """The decoded ``hapi`` metadata of a payload or an extractor file.

    :raises PayloadInvalid: when header or metadata are malformed
    """
    if len(blob) < 8:
        raise PayloadInvalid(f"payload of {len(blob)} bytes has no safetensors header")
    (length,) = struct.unpack("<Q", bytes(blob[:8]))
    if length > min(_MAX_HEADER, len(blob) - 8):
        raise PayloadInvalid(f"safetensors header claims {length} bytes")
    try:
        header = json.loads(bytes(blob[8 : 8 + length]))
        metadata = header["__metadata__"]
        if set(metadata) != {"hapi"}:
            raise PayloadInvalid("metadata must have exactly one key, 'hapi'")
        decoded = json.loads(metadata["hapi"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PayloadInvalid(f"payload header is malformed: {error!r}") from None
    if not isinstance(decoded, dict):
        raise PayloadInvalid("the 'hapi' metadata is no JSON object")
    return decoded


def decode(blob: bytes) -> Features:
    """Read a payload back.

    :raises PayloadInvalid: when it is malformed or its parts do not fit together
    """
    metadata = read_metadata(blob)
    if metadata.get("version") != VERSION:
        raise PayloadInvalid(f"payload version {metadata.get('version')!r} is not {VERSION}")
    try:
        tensors = safetensors.numpy.load(blob)
        keys = tuple(str(key) for key in metadata["keys"])
        errors = tuple(SampleError(int(i), str(k), str(r)) for i, k, r in metadata["errors"])
        result = Features(
            features=tensors["features"],
            index=tensors["index"],
            label=tensors["label"],
            keys=keys,
            cut=str(metadata["cut"]),
            model=str(metadata["model"]),
            errors=errors,
            scale=tensors.get("scale"),
            zero=tensors.get("zero"),
        )
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise PayloadInvalid(f"payload is malformed: {error!r}") from None
    for name in ("index", "label"):
        array = getattr(result, name)
        if array.dtype != np.int64 or array.shape != (len(keys),):
            raise PayloadInvalid(f"{name} is {array.dtype}{array.shape}, not int64[{len(keys)}]")
    if result.features.ndim < 1 or result.features.shape[0] != len(keys):
        raise PayloadInvalid(f"features {result.features.shape} do not fit {len(keys)} keys")
    _check_ranges(result)
    return result


def _check_ranges(found: Features) -> None:
    """int8 comes with finite ranges, and nothing else does."""
    wanted = ranges_shape(found.features.shape) if found.features.dtype == np.int8 else None
    for name in ("scale", "zero"):
        array = getattr(found, name)
        if array is None and wanted is None:
            continue
        if (
            wanted is None
            or array is None
            or array.dtype != np.float32
            or array.shape != wanted
            or not np.isfinite(array).all()
        ):
            raise PayloadInvalid(f"{name} does not fit {found.features.dtype} features")
