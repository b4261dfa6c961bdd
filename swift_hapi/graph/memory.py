"""How much memory a head needs, from liveness on meta tensors.

Fits measurements as fixed + batch x per_sample (fixed: the weights and the libraries' own
buffers). Kernels' scratch is guessed from above: a convolution may hold its output twice (a
reordered copy), attention its projections and scores.
"""

from __future__ import annotations

import torch

from swift_hapi.graph import ir
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.dryrun import dry_run
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.numbers import BATCHES


def _storages(value: object, found: dict[int, int]) -> dict[int, int]:
    """Bytes by storage of all tensors in ``value``: views count once."""
    if torch.is_tensor(value):
        storage = value.untyped_storage()
        found[storage._cdata] = storage.nbytes()
    elif isinstance(value, (tuple, list)):
        for item in value:
            _storages(item, found)
    return found


def _scratch(node: ir.Node, value: object, extractor: Extractor) -> int:
    kind = node.target
    if node.op == ir.MODULE:
        kind = extractor.graph.modules[node.target].type
    tensor = value[0] if isinstance(value, tuple) else value
    if "onv" in kind and torch.is_tensor(tensor):
        return tensor.nbytes
    if kind == "MultiheadAttention":
        config = extractor.graph.modules[node.target].config
        batch, tokens = tensor.shape[:2] if config["batch_first"] else tensor.shape[1::-1]
        return 4 * tensor.nbytes + 4 * batch * config["num_heads"] * tokens * tokens
    return 0


def peak_bytes(
    extractor: Extractor, cut: Cut, batch: int, input_shape: tuple[int, ...] | None = None
) -> int:
    """Most bytes of activations alive at once while a head runs ``batch`` samples, its input and
    output included, the weights not.

    :raises ModelInvalid: the extractor does not run on that input shape
    """
    values = dry_run(extractor.meta, input_shape or extractor.input_shape, batch).values
    needed = ir.slice_to(extractor.graph.nodes, cut.name)
    nodes = [node for node in needed if node.name in extractor.dependent]
    last_use = {name: at for at, node in enumerate(nodes) for name in node.refs()}
    # The caller holds the input, and takes the output.
    last_use[extractor.graph.input] = last_use[cut.name] = len(nodes)
    live: dict[str, dict[int, int]] = {}
    peak = 0
    for at, node in enumerate(nodes):
        live[node.name] = _storages(values[node.name], {})
        together = {key: size for some in live.values() for key, size in some.items()}
        peak = max(peak, sum(together.values()) + _scratch(node, values[node.name], extractor))
        live = {name: some for name, some in live.items() if last_use.get(name, -1) > at}
    return peak


def per_sample_bytes(
    extractor: Extractor, cut: Cut, input_shape: tuple[int, ...] | None = None
) -> int:
    """By how much :func:`peak_bytes` grows with every sample."""
    few, more = (peak_bytes(extractor, cut, batch, input_shape) for batch in BATCHES)
    return (more - few) // (BATCHES[1] - BATCHES[0])
