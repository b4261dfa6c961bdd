"""Ids: samples that are looked up in a table instead of being calculated with."""

from __future__ import annotations

from swift_hapi.graph import ir
from swift_hapi.graph.ir import Graph


def ids_below(graph: Graph) -> int | None:
    """Every id of a sample must be below this; None if the graph does not say.

    It says so where the input is looked up in an embedding as it is.
    """
    limits = [
        graph.modules[node.target].config["num_embeddings"]
        for node in graph.nodes
        if node.op == ir.MODULE
        and graph.modules[node.target] is not None
        and graph.modules[node.target].type == "Embedding"
        and node.args == (ir.Ref(graph.input),)
    ]
    return min(limits, default=None)
