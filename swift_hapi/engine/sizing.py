"""How much memory a request and its lane take. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from swift_hapi.engine.control import LaneKey, LaneSpec
from swift_hapi.graph.memory import HeadMemory
from swift_hapi.protocol.errors import TooLarge
from swift_hapi.protocol.headers import FeatureRequest
from swift_hapi.protocol.limits import Limits

#: Micro-batches of one lane under way: one in the network, one being decoded.
DEPTH = 2
_INDEX_BYTES = 16  #: place and label of a sample in a response
#: of dtypes that float32 is converted into: how much narrower they are at least; int8 by four, but
#: the ranges of channels of two or three values take as much as these
_NARROWER = {"float16": 2, "int8": 1}


@dataclass(frozen=True)
class Footprint:
    """Bytes per sample: decoded input, features at the cut, and what the head needs to run;
    ``fixed`` is what it needs besides, whatever the micro-batch; ``head``: the same, by node."""

    input: int
    output: int
    activations: int
    fixed: int = 0
    head: HeadMemory | None = None


@dataclass(frozen=True)
class BatchLimits:
    """Samples of a micro-batch, as configured; ``fixed``: all are run as large as the largest."""

    least: int
    most: int
    fixed: bool = False


def bound(asked: int | None, limits: BatchLimits) -> int:
    """The client's own limit where it is less than the node's, else 0."""
    return asked if asked is not None and asked < limits.most else 0


def lane_spec(
    key: LaneKey,
    weight_bytes: int,
    footprint: Footprint,
    limits: BatchLimits,
    never: Callable[[LaneSpec], str],
    most_seconds: float = math.inf,
) -> tuple[LaneSpec, int]:
    """A lane's spec, and the rows that each of its micro-batches runs in any case (0: as many as
    there are samples).

    Neither depends on the load of the moment.

    :param never: why a lane can never run, empty if it can
    :param most_seconds: longest that a sample may take
    :raises TooLarge: not even one sample fits
    """
    most = key.bound or limits.most
    if limits.fixed:
        return _padded(key, weight_bytes, footprint, most, never)

    def spec(least: int) -> LaneSpec:
        return LaneSpec(
            key,
            weight_bytes,
            workspace_bytes=footprint.fixed,
            activation_bytes=max(1, footprint.activations),
            decoded_bytes=footprint.input,
            b_min=least,
            b_max=most,
            most_seconds=most_seconds,
        )

    first = spec(min(limits.least, most))
    if not never(first):
        return first, 0
    single = spec(1)
    _raise_if(never(single), footprint)
    return single, 0


def _padded(key, weight_bytes, footprint, most, never) -> tuple[LaneSpec, int]:
    """All rows are paid for, whether they hold samples or not."""
    while True:
        spec = LaneSpec(
            key,
            weight_bytes,
            workspace_bytes=footprint.fixed
            + most * (footprint.activations + DEPTH * footprint.input),
            activation_bytes=1,
            b_min=1,
            b_max=most,
            padded=True,
        )
        reason = never(spec)
        if not reason:
            return spec, most
        if most == 1:
            _raise_if(reason, footprint)
        most //= 2


def _raise_if(reason: str, footprint: Footprint) -> None:
    if reason:
        raise TooLarge(
            f"one sample needs {footprint.activations + footprint.input} bytes in the network: "
            f"{reason}"
        )


def check_output(samples: int, footprint: Footprint, limits: Limits) -> None:
    """:raises TooLarge: too many samples, or too large a response, before anything is computed"""
    if samples > limits.max_samples:
        raise TooLarge(f"{samples} samples are more than the {limits.max_samples} allowed")
    if samples * footprint.output > limits.max_output_bytes:
        raise TooLarge(
            f"{samples} samples of {footprint.output} bytes at this cut are more than the "
            f"{limits.max_output_bytes} bytes of output allowed: ask for fewer samples, or a "
            "later cut"
        )


def output_bytes(samples: int, footprint: Footprint, request: FeatureRequest) -> int:
    """Memory of a response: the features, and once more where they are made narrower, and where
    they are compressed."""
    plain = samples * (footprint.output + _INDEX_BYTES)
    wire = plain // _NARROWER.get(request.dtype, 1)
    size = plain if request.dtype not in _NARROWER else plain + wire
    return size if request.encoding == "identity" else size + wire
