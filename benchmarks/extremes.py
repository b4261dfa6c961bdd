"""Files whose numbers have no business in a native kernel: sizes, steps and shifts at the ends of
what 32 and 64 bits hold, divisions that have no result, tensors without elements.

A kernel that divides by what was given it, or multiplies it, can end the process (SIGFPE, SIGSEGV)
where Python would raise. Many only do so on some batch sizes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from benchmarks import extreme_steps as steps_
from benchmarks.building import X, call, file

VALUES = (
    0, -1, 1, 7, 46_341, 65_535, 65_536, 65_537, 2**31 - 1, 2**31, 2**32, 2**40, 2**62,
    -(2**31), -(2**62),
)  # fmt: skip
FLOATS = (1e-300, 1e300, {"float": "inf"}, {"float": "nan"}, {"float": "-inf"}, -1.0, 0.0, 1e18)
_LIKELY = (0, 1, 1, 2, 2, 3, 5, 8, 9, 255, 4096, 46_341, 65_535, 65_536)


def _written(steps: steps_.Steps) -> bytes:
    nodes = [
        call(f"n{i}", op, target, *args, **words)
        for i, (op, target, args, words) in enumerate(steps)
    ]
    nodes.append(call("float", "method", "float", {"ref": f"n{len(steps) - 1}"}))
    nodes.append(call("end", "method", "relu", {"ref": "float"}))
    return file(nodes, "end")


def extremes(values: Sequence[int] = VALUES) -> Iterator[tuple[str, bytes]]:
    """(name, file) of every case."""
    for value in values:
        for make in (steps_.convolutions, steps_.windows, steps_.shapes, steps_.integers):
            for name, steps in make(value):
                yield f"{name}: {value}", _written(steps)
        for name, module in steps_.modules(value):
            nodes = [call("a", "module", "m", X), call("end", "method", "relu", {"ref": "a"})]
            yield f"{name}: {value}", file(nodes, "end", modules={"m": module})
    for value in FLOATS:
        for name, steps in steps_.floats(value):
            yield f"{name}: {value}", _written(steps)
    for make in (steps_.divided, steps_.empty):
        for name, steps in make():
            yield name, _written(steps)


def windows_at_random(rng: random.Random) -> bytes:
    """Windows of every extent, stride, padding and dilation that a file may name, together."""

    def pair() -> dict | int:
        one, other = rng.choice(_LIKELY), rng.choice(_LIKELY)
        return one if rng.random() < 0.5 else {"tuple": [one, other]}

    kind = rng.randrange(6)
    padding, dilation = pair(), pair()
    if rng.random() < 0.5:
        # A window of three whose reach is what is padded: the size stays as it is.
        dilation = padding
    if kind < 3:
        groups = rng.choice((1, 1, 3))
        shape = [3, 3 // groups, rng.choice((1, 2, 3, 5)), rng.choice((1, 3))]
        name = "conv2d" if kind < 2 else "conv_transpose2d"
        ones = call("w", "function", "torch.ones", {"tuple": shape})
        words = {"stride": pair(), "padding": padding, "dilation": dilation, "groups": groups}
        step = call("a", "function", f"functional.{name}", X, {"ref": "w"}, **words)
    else:
        ones = call("w", "method", "to", X, {"dtype": rng.choice(("float32", "int64"))})
        name = ("max_pool2d", "avg_pool2d", "unfold")[kind - 3]
        words = {"kernel_size": pair(), "stride": pair(), "padding": padding}
        if name != "avg_pool2d":
            words["dilation"] = dilation
        step = call("a", "function", f"functional.{name}", {"ref": "w"}, **words)
    end = call("end", "method", "float", {"ref": "a"})
    return file([ones, step, end], "end", shape=(3, rng.choice((1, 8, 40)), rng.choice((1, 8))))


def extreme(rng: random.Random) -> bytes:
    """One of the cases, with another number in it."""
    value = rng.choice((rng.choice(VALUES), rng.randrange(-(2**62), 2**62), rng.randrange(70_000)))
    make = rng.choice((steps_.convolutions, steps_.windows, steps_.shapes, steps_.integers))
    return _written(rng.choice(list(make(value)))[1])


EXTREME = {"windows_at_random": windows_at_random, "extreme": extreme}
