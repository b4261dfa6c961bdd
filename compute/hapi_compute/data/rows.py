"""The samples of a shard, and how each becomes a float32 array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.timings import Timings
from hapi_compute.store.occupancy import RECEIVE
from swift_hapi.graph.packing import unpack
from swift_hapi.protocol.errors import HapiError
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import TransformSpec
from swift_hapi.protocol.wire import Packed
from swift_hapi.samples.decode import decode_sample, normalised
from swift_hapi.samples.shard import RawSample

Part = TypeVar("Part", np.ndarray, Packed)


@dataclass(frozen=True)
class ImageRows:
    """Encoded samples, decoded when they are loaded: far smaller while they wait."""

    samples: tuple[RawSample, ...]
    transform: TransformSpec | None
    where: str
    limits: Limits
    timings: Timings

    def load(self, position: int, out: np.ndarray) -> None:
        """:raises HapiError: naming object, sample and reason"""
        with self.timings.measure("decode", RECEIVE):
            try:
                row = decode_sample(self.samples[position], self.transform, self.limits)
            except HapiError as error:
                raise type(error)(f"{self.where}: {error.detail}", **error.members) from None
            _fill(out, row, self.where)


@dataclass(frozen=True)
class PackedRows:
    """Features as they came; parts follow each other. They are made float32 when they are loaded,
    and wait in fewer bytes.

    :param transform: of which pixels lack the last step
    """

    parts: tuple[Packed, ...]
    transform: TransformSpec | None
    where: str

    def load(self, position: int, out: np.ndarray) -> None:
        part, at = _located(self.parts, position)
        if part.rows.dtype == np.uint8:
            row = normalised(part.rows[at], self.transform)
        else:
            row = unpack(part, at)
        _fill(out, row, self.where)


@dataclass(frozen=True)
class ArrayRows:
    """Decoded samples or features, [n, ...]; parts follow each other."""

    parts: tuple[np.ndarray, ...]
    where: str

    def load(self, position: int, out: np.ndarray) -> None:
        part, at = _located(self.parts, position)
        _fill(out, part[at], self.where)


def _located(parts: Sequence[Part], position: int) -> tuple[Part, int]:
    """The part that holds ``position`` of them all, and the place in it."""
    for part in parts:
        if position < len(part):
            return part, position
        position -= len(part)
    raise IndexError(position)


def _fill(out: np.ndarray, row: np.ndarray, where: str) -> None:
    if row.shape != out.shape:
        raise DatasetError(f"{where}: a sample has shape {row.shape}, the model takes {out.shape}")
    out[...] = row
