"""Numbers that native kernels cannot be trusted with never reach one."""

from __future__ import annotations

import os

import pytest
import torch

from benchmarks.building import X, call, file
from benchmarks.extremes import extremes
from benchmarks.fuzz_extractor import Worker
from swift_hapi.graph.extractor import load_extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.kernels import MAX_NUMBER, MAX_REACH, MAX_SPREAD
from swift_hapi.protocol.errors import ModelInvalid


def ints(*steps) -> bytes:
    """The input as int64, then ``steps``, each on the one before it."""
    nodes, last = [call("ids", "method", "to", X, {"dtype": "int64"})], {"ref": "ids"}
    for i, (op, target, *args) in enumerate(steps):
        words = args.pop() if args and isinstance(args[-1], dict) and "words" in args[-1] else {}
        args = [last if arg == "last" else arg for arg in args]
        nodes.append(call(f"n{i}", op, target, *args, **words.get("words", {})))
        last = {"ref": f"n{i}"}
    nodes.append(call("end", "method", "float", last))
    return file(nodes, "end")


def mode(word: str) -> dict:
    return {"words": {"rounding_mode": word}}


DIVISIONS = {
    "by what the network finds": ("function", "torch.div", "last", "last", mode("trunc")),
    "floor": ("method", "div", "last", "last", mode("floor")),
    "in place": ("method", "div_", "last", "last", mode("trunc")),
    "by -1": ("function", "torch.div", "last", -1, mode("trunc")),
    "by 0": ("function", "torch.div", "last", 0, mode("floor")),
    "//": ("function", "operator.floordiv", "last", "last"),
    "// -1": ("function", "operator.floordiv", "last", -1),
    "%": ("function", "operator.mod", "last", "last"),
    "% 0": ("function", "operator.mod", "last", 0),
    "of a number": ("function", "operator.mod", 7, "last"),
}


@pytest.mark.parametrize("case", DIVISIONS)
def test_integers_are_divided_by_harmless_numbers_only(case):
    with pytest.raises(ModelInvalid, match="of integers: the divisor must be one number"):
        load_extractor(ints(DIVISIONS[case]))


def test_constants_are_looked_at_too():
    kind = {"dtype": {"dtype": "int64"}}
    nodes = [
        call("a", "function", "torch.full", {"tuple": [8]}, -(2**62), **kind),
        call("b", "method", "mul", {"ref": "a"}, 2),
        call("c", "function", "torch.full", {"tuple": [8]}, -1, **kind),
        call("d", "function", "torch.div", {"ref": "b"}, {"ref": "c"}, rounding_mode="trunc"),
        call("end", "method", "add", X, {"ref": "d"}),
    ]
    with pytest.raises(ModelInvalid, match="node 'd': div of integers"):
        load_extractor(file(nodes, "end"))


@pytest.mark.parametrize(
    "step",
    [
        ("function", "operator.mod", "last", -3),
        ("function", "torch.div", "last", 2, mode("floor")),
        ("function", "torch.div", "last", "last"),
        ("function", "torch.div", "last", 0.0, mode("trunc")),
        ("function", "operator.mod", "last", 2.5),
    ],
)
def test_other_divisions_run(step):
    extractor = load_extractor(ints(step))
    head = Head(extractor, extractor.cuts[-1])
    assert head(torch.full((2, 3, 8, 8), 5.0)).shape == (2, 3, 8, 8)


FAR = MAX_REACH + 1
_W = call("w", "function", "torch.ones", {"tuple": [3, 3, 3, 3]})


def _conv(*args) -> list[dict]:
    return [_W, call("a", "function", "functional.conv2d", X, {"ref": "w"}, None, *args)]


def _transposed(*args) -> list[dict]:
    words = "functional.conv_transpose2d"
    return [_W, call("a", "function", words, X, {"ref": "w"}, None, *args)]


def _module(kind: str, config: dict) -> bytes:
    modules = {"m": {"type": kind, "config": config}}
    return file([call("a", "module", "m", X)], "a", modules=modules)


def _one(target: str, *args, op: str = "function") -> list[dict]:
    return [call("a", op, target, X, *args)]


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (_conv(1, 2**31 - 1, 2**31 - 1), "padding must be at most"),
        (_conv(1, "same", FAR), "padding must be at most"),
        (_conv(FAR, 1), "stride must be at most"),
        (_transposed(MAX_SPREAD + 1), "transposed convolution spreads by"),
        (_transposed(1, 0, 0, 1, MAX_SPREAD + 1), "transposed convolution spreads by"),
        (_transposed(1, 0, 0, 1, 0), "must be above 0"),
        (_one("functional.max_pool2d", 2, FAR), "stride must be at most"),
        (_one("functional.avg_pool2d", FAR, 1, FAR // 2), "kernel_size must be at most"),
        (_one("functional.pad", {"tuple": [FAR, -FAR]}), "pad must be at most"),
        (_one("functional.pixel_shuffle", 2**32), "upscale_factor must be at most"),
        (_one("functional.avg_pool2d", 1, 1, 0, False, True, -1), "divisor_override must be"),
        (_one("roll", MAX_NUMBER + 1, 2, op="method"), "shifts must be at most"),
        ([call("r", "function", "torch.arange", 2**62, -(2**62), -1),
          call("a", "method", "add", X, {"ref": "r"})], "start must be at most"),
        ([call("r", "function", "torch.arange", 3),
          call("a", "function", "torch.repeat_interleave", X, {"ref": "r"}, 1, output_size=3)],
         "must be one number"),
    ],
)  # fmt: skip
def test_numbers_of_functions_are_bounded(nodes, words):
    with pytest.raises(ModelInvalid, match=words):
        load_extractor(file(nodes, "a"))


def test_computed_numbers_are_bounded_too():
    nodes = [
        call("n", "method", "size", X, 2),
        call("far", "function", "operator.mul", {"ref": "n"}, 2**20),
        *_conv(1, {"ref": "far"}, {"ref": "far"}),
    ]
    with pytest.raises(ModelInvalid, match="node 'a': padding must be at most"):
        load_extractor(file(nodes, "a"))


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("Unfold", {"kernel_size": 3, "dilation": FAR, "padding": FAR, "stride": 1}),
        ("PixelShuffle", {"upscale_factor": FAR}),
        ("ZeroPad2d", {"padding": {"tuple": [FAR, -FAR, 0, 0]}}),
        ("AvgPool2d", {"kernel_size": 1, "stride": 1, "padding": 0, "ceil_mode": False,
                       "count_include_pad": True, "divisor_override": -1}),
        ("MaxPool2d", {"kernel_size": 2, "stride": FAR, "padding": 0, "dilation": 1,
                       "return_indices": False, "ceil_mode": False}),
    ],
)  # fmt: skip
def test_numbers_of_modules_are_bounded(kind, config):
    with pytest.raises(ModelInvalid, match=r"module 'm' \(.*\): bad "):
        load_extractor(_module(kind, config))


def test_windows_as_far_as_an_input_can_be_long():
    data = file(_conv(1, MAX_REACH // 2, MAX_REACH // 2), "a")
    extractor = load_extractor(data)
    for count in (1, 2, 8):
        out = Head(extractor, extractor.cuts[-1])(torch.ones(count, 3, 8, 8))
        # Only the middle of the window meets anything.
        assert torch.equal(out, torch.full((count, 3, 8, 8), 3.0))


def test_nothing_ends_the_process(monkeypatch):
    """Run in another process for one, two and eight samples; ``benchmarks.fuzz_extractor`` runs
    more of them."""
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    worker = Worker()
    failures, loaded = [], 0
    try:
        for name, data in extremes((65_536, 2**31 - 1, -(2**62))):
            verdict, words, *_ = worker.try_file(data)
            loaded += verdict == "loaded"
            if verdict not in ("loaded", "refused"):
                failures.append(f"{name}: {verdict} {words}")
    finally:
        worker.stop()
    assert not failures
    assert loaded > 200
