"""How much memory a request takes, and how large its micro-batches may be. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from swift_hapi.engine.admission import Shares
from swift_hapi.protocol.errors import TooLarge
from swift_hapi.protocol.limits import Limits

#: An object is held once in the pieces it came in and once as a whole.
OBJECT_COPIES = 2
#: Micro-batches decoded at a time: one in the network, one ahead.
BATCH_COPIES = 2
#: A response exists as array, as the array's bytes, and within its payload, while it is encoded.
OUTPUT_COPIES = 3


@dataclass(frozen=True)
class Footprint:
    """Bytes per sample: decoded input, features at the cut, and what the head needs to run."""

    input: int
    output: int
    activations: int


def micro_batch(asked: int | None, most: int, footprint: Footprint, shares: Shares) -> int:
    """Samples to run at once: as many as asked, as the node allows and as memory permits.

    It depends on the request and on the configuration alone, never on load: equal requests run
    in equal micro-batches, hence give equal bits.

    :raises TooLarge: not even one sample fits
    """
    if footprint.activations > shares.activations:
        raise TooLarge(
            f"one sample needs {footprint.activations} bytes in the network, the node has "
            f"{shares.activations}: ask for a smaller image or an earlier cut"
        )
    fitting = shares.activations // max(1, footprint.activations)
    # No more than half of the work memory for inputs, so that there is room for outputs.
    fitting = min(fitting, max(1, shares.work // 2 // (BATCH_COPIES * max(1, footprint.input))))
    return min(asked or most, most, fitting)


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


def work_memory(samples: int, batch: int, footprint: Footprint) -> int:
    """Bytes for decoded micro-batches and for the response."""
    inputs = BATCH_COPIES * min(batch, samples) * footprint.input
    return inputs + OUTPUT_COPIES * samples * footprint.output
