"""What an extractor file may ask for before it is refused.

To examine a file must not cost much more than to send it. So all that is done before it is known
to be good is linear in something that has a limit here. In brackets: what the largest of the
models that were tried asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MiB = 2**20

#: bytes of the header (0.8 MB), and in it commas and opening brackets, of which there is about one
#: for each value (49,000): a value takes far more memory than the two bytes it is written with
MAX_HEADER = 4 * MiB
MAX_VALUES = 250_000
#: tensors by name, with those that share another's memory (2,000)
MAX_TENSORS = 10_000
#: nodes (3,700)
MAX_NODES = 5_000
#: modules; those that are made of many count as many (1,200)
MAX_MODULES = 5_000
#: over all nodes, how many others run until a node's value is used for the last time (31,000)
MAX_HELD = 250_000
#: tensors or numbers in one sequence (64), and in all results that are sequences (1,500)
MAX_SEQUENCE = 1_024
MAX_ITEMS = 20_000
#: tensors that operations take and give, in all (11,300)
MAX_HANDLED = 50_000
#: dimensions of a tensor (6)
MAX_RANK = 16


@dataclass(frozen=True)
class Caps:
    """Limits on an extractor; the defaults hold where nobody says otherwise.

    :param parameter_bytes: all tensors of a file together
    :param tensor_bytes: any one tensor that is made while the network runs, per sample
    :param flops: of one sample through the whole network, as fast as those of a matrix product;
        an element of any other result counts as hundreds (``work.py``)
    :param node_flops: of one sample in one node: between nodes a run can be given up, in them not
    :param effort: tensors made in one run on meta tensors, also those within modules; operations
        that are slow there count as more (6,400)
    :param constant_bytes: all that is computed from weights alone, once, while loading; as much
        again as the weights take, eight times, is allowed on top
    :param constant_flops: work of the same; 500 for every byte of weights are allowed on top
    :param seconds: of one CPU, for the same (0.4): in case that an operation is slower than known
    """

    parameter_bytes: int = 4096 * MiB
    tensor_bytes: int = 1024 * MiB
    flops: float = 4e12
    node_flops: float = 4e11
    effort: int = 12_000
    constant_bytes: int = 64 * MiB
    constant_flops: float = 1e11
    seconds: float = 2.0

    def __post_init__(self):
        for name in self.__dataclass_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")

    def with_weights(self, nbytes: int) -> Caps:
        """The same for a file with so many bytes of weights."""
        return replace(
            self,
            constant_bytes=self.constant_bytes + 8 * nbytes,
            constant_flops=self.constant_flops + 500 * nbytes,
        )


DEFAULT = Caps()
#: for graphs that never leave the compute side
UNLIMITED = Caps(
    **{
        name: float("inf") if isinstance(getattr(DEFAULT, name), float) else 2**62
        for name in Caps.__dataclass_fields__
    }
)
