"""How the work of an extractor spreads over its cuts, counted on meta tensors.

Only matrix products and convolutions count. Good for showing; for planning, measure.
"""

from __future__ import annotations

from torch.utils.flop_counter import FlopCounterMode

from swift_hapi.graph import ir
from swift_hapi.graph.caps import UNLIMITED
from swift_hapi.graph.dryrun import dry_run
from swift_hapi.graph.extractor import Extractor


def flops_per_sample(
    extractor: Extractor, input_shape: tuple[int, ...] | None = None
) -> dict[str, int]:
    """Floating-point operations of the head at each cut, by cut name.

    :raises ModelInvalid: the extractor does not run on that input shape
    """
    own: dict[str, int] = {}
    so_far = 0
    with FlopCounterMode(display=False) as counter:

        def note(node: ir.Node, value: object) -> None:
            nonlocal so_far
            total = counter.get_total_flops()
            own[node.name], so_far = total - so_far, total

        shape = input_shape or extractor.input_shape
        dry_run(extractor.meta, shape, 1, caps=UNLIMITED, on_node=note)
    heads = {}
    for cut in extractor.cuts:
        needed = ir.slice_to(extractor.graph.nodes, cut.name)
        heads[cut.name] = sum(own[n.name] for n in needed if n.name in extractor.dependent)
    return heads
