"""Nothing of one request survives in a loaded extractor for the next one to read."""

from __future__ import annotations

import resource

import pytest
import torch
from torch import nn

from swift_hapi.graph.codec import decode_graph
from swift_hapi.graph.extractor import Extractor, load_extractor, save_extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.errors import ModelInvalid
from tests.unit.graph.models import image

SHAPE = (3, 8, 8)


def ref(name: str) -> dict:
    return {"ref": name}


def function(name: str, target: str, *args, op: str = "function") -> dict:
    return {"name": name, "op": op, "target": target, "args": list(args)}


def extractor(*nodes: dict, output: str) -> Extractor:
    document = {
        "nodes": [
            {"name": "input", "op": "input"},
            {"name": "a", "op": "attr", "target": "w"},
            *nodes,
        ],
        "modules": {},
        "output": output,
    }
    return Extractor(decode_graph(document), {"w": torch.zeros(1, *SHAPE)}, SHAPE)


@pytest.mark.parametrize(
    "kept",
    [
        function("kept", "torch.zeros_like", ref("a")),
        function("kept", "torch.mul", ref("a"), 1),
        function("kept", "torch.zeros", {"tuple": [1, *SHAPE]}),
    ],
    ids=["zeros_like", "product", "zeros"],
)
@pytest.mark.parametrize(
    "write",
    [("method", "add_"), ("function", "operator.iadd")],
    ids=["method", "operator"],
)
def test_what_is_kept_between_requests_cannot_be_written(kept, write):
    op, target = write
    with pytest.raises(ModelInvalid, match="writes into"):
        extractor(
            kept,
            function("mean", "torch.mean", ref("input"), 0, True),
            function("steal", target, ref("kept"), ref("mean"), op=op),
            function("out", "torch.add", ref("steal"), ref("input")),
            output="out",
        )


def test_a_view_of_what_is_kept_cannot_be_written_either():
    with pytest.raises(ModelInvalid, match="writes into"):
        extractor(
            function("kept", "torch.zeros_like", ref("a")),
            function("view", "reshape", ref("kept"), 1, -1, op="method"),
            function("mean", "torch.mean", ref("input"), 0, True),
            function("flat", "reshape", ref("mean"), 1, -1, op="method"),
            function("steal", "add_", ref("view"), ref("flat"), op="method"),
            function("out", "torch.add", ref("input"), ref("kept")),
            output="out",
        )


def test_adding_a_constant_in_place_is_fine():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.place = nn.Parameter(torch.randn(1, *SHAPE))
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            x = self.conv(x)
            x += self.place * 2
            return torch.nn.functional.relu(x, inplace=True)

    net = Net().eval()
    extractor = make_extractor(net, None, SHAPE)
    x = image(SHAPE[1])
    with torch.no_grad():
        assert torch.equal(Head(extractor, extractor.cuts[-1])(x), net(x))


def test_same_input_same_output_whatever_came_between(tmp_path):
    path = tmp_path / "net.safetensors"
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten())
    save_extractor(make_extractor(net.eval(), None, SHAPE), path)
    loaded = load_extractor(path)
    head = Head(loaded, loaded.cuts[-1])
    x = image(SHAPE[1])
    before = head(x).clone()
    head(torch.rand(2, *SHAPE))
    assert torch.equal(head(x), before)


def test_a_dry_run_takes_no_memory():
    # 6 x 800 MB, if they were made.
    with pytest.raises(ModelInvalid):
        before = peak_bytes()
        try:
            extractor(
                *[
                    function(f"big{i}", "torch.full", {"tuple": [200_000_000]}, 1.0)
                    for i in range(6)
                ],
                *[
                    function(f"one{i}", "operator.getitem", ref(f"big{i}"), 0) for i in range(6)
                ],
                function("out", "torch.add", ref("input"), ref("one0")),
                output="out",
            )
        finally:
            assert peak_bytes() - before < 200 << 20


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(
    "bad",
    [
        function("bad", "to", ref("input"), "meta", op="method"),
        function("bad", "to", ref("input"), "cuda", op="method"),
        {**function("bad", "torch.zeros_like", ref("input")), "kwargs": {"device": "meta"}},
        function("bad", "getattr", ref("input"), [1]),
    ],
    ids=["to meta", "to cuda", "device=", "getattr"],
)
def test_neither_devices_nor_odd_attributes_can_be_named(bad):
    with pytest.raises(ModelInvalid, match="device|getattr"):
        extractor(
            bad, function("out", "torch.add", ref("input"), ref("a")), output="out"
        )
