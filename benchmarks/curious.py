"""Extractor files that would learn of samples other than their own: of the same batch, or of
earlier requests.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.building import X, call, file


def mixing(rng: random.Random) -> bytes:
    target, *args = rng.choice(
        (("flip", [0]), ("roll", 1, 0), ("mean", 0, True), ("cumsum", 0), ("softmax", 0), ("sum",))
    )
    return file([call("a", "method", target, X, *args)], "a")


def counting(rng: random.Random) -> bytes:
    """Learn how many samples there are, of something that holds none."""
    target, *args = rng.choice(
        (("sum", 0, True), ("cumsum", 0), ("mean", 0), ("norm",), ("flip", [0]), ("softmax", 0))
    )
    shape = {"tuple": [{"ref": "n"}, 3, *rng.choice(([1, 1], [8, 1]))]}
    rows = rng.choice((
        [call("r", "function", rng.choice(("torch.ones_like", "torch.zeros_like")), X)],
        [call("r", "function", "torch.ones", shape)],
        [call("o", "function", "torch.ones", {"tuple": [3, 1, 1]}),
         call("r", "method", "repeat", {"ref": "o"}, {"ref": "n"}, 1, 1, 1)],
        [call("o", "function", "torch.ones", {"tuple": [1, 3, 1, 1]}),
         call("r", "method", "expand", {"ref": "o"}, {"ref": "n"}, -1, -1, -1)],
        [call("o", "function", "torch.ones", {"tuple": [3, 1, 1]}),
         call("r", "method", "expand_as", {"ref": "o"}, X)],
    ))  # fmt: skip
    nodes = [
        call("n", "method", "size", X, 0),
        *rows,
        call("c", "method", target, {"ref": "r"}, *args),
        call("a", "method", rng.choice(("add", "mul", "sub")), X, {"ref": "c"}),
    ]
    return file(nodes, "a")


def states(rng: random.Random) -> bytes:
    """Keep something of one request for the next."""
    nodes = [
        call("z", "function", "torch.zeros", {"tuple": [1, 3, 8, 8]}),
        call("w", "method", rng.choice(("add_", "mul_", "relu_")), {"ref": "z"}, X),
        call("a", "function", "operator.add", X, {"ref": "z"}),
    ]
    return file(nodes, "a")


CURIOUS: dict[str, Callable[[random.Random], bytes]] = {
    function.__name__: function for function in (mixing, counting, states)
}
