"""Operations with well-formed arguments, which fit often enough that the kernels are reached."""

from __future__ import annotations

import random


def likely(rng: random.Random, last: dict, names: list[str]) -> tuple:
    """Operation, target and arguments that are well formed, and often fit."""
    dim, number = rng.randrange(-3, 4), rng.choice((0, 1, 2, 3, 5))
    other = {"ref": rng.choice(names)} if rng.random() < 0.5 else last
    pads = {"tuple": [rng.randrange(-1, 4) for _ in range(rng.choice((2, 4, 6)))]}
    scalar = rng.choice((other, other, 0.5, -2, 3))
    index = {
        "tuple": [
            {"slice": [None, None, None]},
            rng.choice((0, -1, {"slice": [0, 2, None]}, {"slice": [None, None, 2]})),
        ]
    }
    return rng.choice(
        (
            (
                "method",
                rng.choice(
                    (
                        "relu",
                        "sigmoid",
                        "exp",
                        "abs",
                        "neg",
                        "tanh",
                        "sqrt",
                        "clone",
                        "contiguous",
                        "square",
                        "sin",
                        "float",
                    )
                ),
                last,
            ),
            (
                "method",
                rng.choice(("add", "mul", "sub", "div", "matmul", "ge", "eq")),
                last,
                scalar,
            ),
            ("function", rng.choice(("operator.mod", "operator.floordiv")), last, scalar),
            ("function", "operator.mul", last, rng.choice((2**31, 2**62, -(2**62)))),
            (
                "function",
                rng.choice(
                    (
                        "operator.add",
                        "operator.mul",
                        "torch.maximum",
                        "operator.matmul",
                        "torch.where",
                        "operator.truediv",
                    )
                ),
                last,
                scalar,
            ),
            ("method", "transpose", last, dim, rng.randrange(-3, 4)),
            (
                "method",
                rng.choice(("flatten", "unsqueeze", "squeeze", "softmax", "cumsum")),
                last,
                dim,
            ),
            (
                "method",
                rng.choice(("mean", "sum", "amax", "std", "norm")),
                last,
                {"tuple": [dim]},
                rng.random() < 0.7,
            ),
            ("function", "torch.cat", [last, other], dim),
            ("function", "torch.stack", [last, last], dim),
            (
                "function",
                "functional.pad",
                last,
                pads,
                rng.choice(("constant", "constant", "reflect", "replicate", "circular")),
            ),
            (
                "function",
                rng.choice(
                    (
                        "functional.avg_pool2d",
                        "functional.max_pool2d",
                        "functional.avg_pool1d",
                        "functional.max_pool1d",
                    )
                ),
                last,
                rng.randrange(0, 5),
                rng.randrange(0, 4),
                rng.randrange(0, 3),
            ),
            (
                "function",
                rng.choice(
                    (
                        "functional.adaptive_avg_pool2d",
                        "functional.adaptive_max_pool2d",
                        "functional.adaptive_avg_pool1d",
                    )
                ),
                last,
                number,
            ),
            (
                "function",
                "functional.interpolate",
                last,
                None,
                rng.choice((0.3, 0.5, 1.7, 2, 3)),
                rng.choice(("nearest", "bilinear", "bicubic", "linear", "nearest-exact", "area")),
            ),
            (
                "function",
                "functional.unfold",
                last,
                number,
                rng.randrange(1, 3),
                rng.randrange(3),
                rng.randrange(1, 3),
            ),
            ("function", "functional.fold", last, number, rng.randrange(1, 4)),
            ("function", rng.choice(("torch.roll",)), last, rng.randrange(-3, 9), dim),
            ("method", "flip", last, dim),
            (
                "method",
                "repeat",
                last,
                1,
                *[rng.randrange(0, 4) for _ in range(rng.randrange(1, 4))],
            ),
            (
                "method",
                rng.choice(("reshape", "view")),
                last,
                -1,
                *[rng.choice((1, 2, 3, 4, 8, 12)) for _ in range(rng.randrange(0, 4))],
            ),
            ("method", "permute", last, *rng.sample(range(4), rng.choice((3, 4)))),
            ("method", "narrow", last, dim, rng.randrange(3), rng.randrange(4)),
            ("method", "unfold", last, dim, rng.randrange(4), rng.randrange(4)),
            ("method", "expand", last, -1, *[rng.choice((-1, 1, 2, 5)) for _ in range(3)]),
            ("function", "operator.getitem", last, index),
            (
                "function",
                rng.choice(("functional.layer_norm",)),
                last,
                {"tuple": [rng.choice((3, 4, 5, 6, 8, 12)) for _ in range(rng.randrange(1, 3))]},
            ),
            (
                "function",
                rng.choice(
                    (
                        "functional.group_norm",
                        "functional.pixel_shuffle",
                        "functional.pixel_unshuffle",
                        "functional.channel_shuffle",
                        "functional.glu",
                        "functional.local_response_norm",
                    )
                ),
                last,
                number,
            ),
            ("function", "functional.conv2d", last, other, None, rng.randrange(0, 3), number),
            ("function", "functional.scaled_dot_product_attention", last, last, other),
            (
                "function",
                "torch.einsum",
                rng.choice(
                    ("nchw,nchw->nhw", "ij,ij->i", "nij,njk->nik", "...,...->...", "ii->i")
                ),
                last,
                other,
            ),
            ("function", "functional.normalize", last, rng.choice((1, 2, 0.5)), dim),
            ("function", "functional.embedding", other, last),
            ("method", "masked_fill", last, other, 0.0),
            ("method", "repeat_interleave", last, number, dim),
            ("method", "to", last, {"dtype": rng.choice(("float32", "int64", "bool", "uint8"))}),
        )
    )
