"""Where a split is that has been asked for by name."""

from __future__ import annotations

from torch import nn

from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.errors import BadCut


def find_cut(
    split: str, extractor: Extractor, module: nn.Module, input_shape: tuple[int, ...]
) -> Cut:
    """The cut of that name or index, or the last cut within the module of that path, as for the
    freeze point.

    :param extractor: the frozen part
    :param module: the whole network that it is of
    :raises ValueError: there is none in the frozen part
    """
    try:
        return extractor.resolve(split)
    except BadCut as error:
        if split not in dict(module.named_modules()):
            raise ValueError(f"split={split!r}: {error.detail}") from None
    try:
        name = make_extractor(module, split, input_shape).cuts[-1].name
    except BadCut as error:
        raise ValueError(f"split={split!r}: {error.detail}") from None
    try:
        return extractor.resolve(name)
    except BadCut:
        last = extractor.cuts[-1].name
        raise ValueError(
            f"split={split!r}: the module ends at {name!r}, behind the freeze point {last!r}"
        ) from None
