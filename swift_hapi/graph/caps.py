"""What an extractor file may ask for before it is refused."""

from __future__ import annotations

from dataclasses import dataclass

MiB = 2**20


@dataclass(frozen=True)
class Caps:
    """Limits on an extractor; the defaults hold where nobody says otherwise.

    :param parameter_bytes: all tensors of a file together
    :param tensor_bytes: any one tensor that is made while the network runs, per sample
    :param flops: of one sample through the whole network; an element of any result that is no
        matrix product or convolution counts as one
    :param made: tensors made while the network runs once, also those within modules
    :param constant_bytes: all that is computed from weights alone, once, while loading; as much
        again as the weights take, eight times, is allowed on top
    :param constant_flops: work of the same
    """

    parameter_bytes: int = 4096 * MiB
    tensor_bytes: int = 1024 * MiB
    flops: float = 4e12
    made: int = 10_000
    constant_bytes: int = 64 * MiB
    constant_flops: float = 1e10

    def __post_init__(self):
        for name in self.__dataclass_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")


DEFAULT = Caps()
#: for graphs that never leave the compute side
UNLIMITED = Caps(2**62, 2**62, float("inf"), 2**62, 2**62, float("inf"))
