"""Options of one pass over a dataset. Pure stdlib, so that a command line can read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from hapi_compute.store.names import SwiftUrl
from swift_hapi.protocol.headers import ENCODINGS, FEATURE_DTYPES

AUTO, RAW = "auto", "raw"
#: of files of features
SUFFIXES = (".npy", ".safetensors")


def check_out(out: str) -> None:
    """:raises ValueError: features cannot be written under that name"""
    if PurePath(out).suffix not in SUFFIXES:
        raise ValueError(f"out={out!r}: want a name that ends in {' or '.join(SUFFIXES)}")



@dataclass(frozen=True)
class ScanConfig:
    """How a dataset is read; nothing here but ``dtype`` has an influence on what comes out.

    :param dataset: ``swift://container/prefix``
    :param labels: see :func:`hapi_compute.data.listing.pin`
    :param concurrency: requests at once
    :param prefetch: shards read ahead
    :param prefetch_bytes: bound of the same in bytes
    :param micro_batch: samples that run at once, at most, on either tier
    :param dtype: of features on the wire; float16 and int8 round them
    :param encoding: content coding of features on the wire
    :param threads: torch's CPU threads; None: all CPUs
    :param decode_threads: threads that decode on this machine; None: one for every second CPU
    :param require_pushdown: fail where the store cannot run the head
    :raises ValueError: an option is out of range; the message names it and the range
    """

    dataset: str
    labels: str | None = None
    concurrency: int = 4
    prefetch: int = 8
    prefetch_bytes: int = 256 << 20
    micro_batch: int = 32
    dtype: str = "float32"
    encoding: str = "identity"
    threads: int | None = None
    decode_threads: int | None = None
    require_pushdown: bool = False

    def __post_init__(self):
        SwiftUrl.parse(self.dataset)
        for name, low, high in (
            ("concurrency", 1, 256),
            ("prefetch", 1, 100_000),
            ("prefetch_bytes", 1 << 20, 1 << 40),
            ("micro_batch", 1, 4096),
            ("threads", 1, 4096),
            ("decode_threads", 1, 4096),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name}={value}: want {low} to {high}")
        for name, choices in (("dtype", FEATURE_DTYPES), ("encoding", ENCODINGS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r}: want {' or '.join(choices)}")
