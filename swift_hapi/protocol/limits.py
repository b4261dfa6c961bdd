"""Default limits of a node, shared by filter, engine and client. Pure stdlib."""

from __future__ import annotations

from dataclasses import dataclass

MiB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What one request may ask for; each is an option of the filter and of the engine."""

    max_object_bytes: int = 256 * MiB  #: bytes of the source object
    max_samples: int = 4096  #: samples in one shard
    max_pixels: int = 64 * 1000 * 1000  #: width x height of one image, before any resize
    max_output_bytes: int = 256 * MiB  #: bytes of one response body, before encoding
    max_model_bytes: int = 2048 * MiB  #: bytes of one extractor file
    deadline: float = 300.0  #: seconds from admission to the last byte computed
    admission_timeout: float = 2.0  #: seconds within which the engine says yes or no
