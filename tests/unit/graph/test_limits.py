"""To examine a file costs little more than to send it: what would take long is refused early."""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys

import pytest
import torch
from torch import nn

from benchmarks import costly
from benchmarks.building import X, call, chain, document, file, pack, with_header
from swift_hapi.graph.caps import DEFAULT, MAX_HEADER, MAX_NODES, MAX_TENSORS, Caps
from swift_hapi.graph.extractor import Extractor, load_extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.modules import bind, build, spec_of
from swift_hapi.graph.program import Program
from swift_hapi.graph.work import ELEMENT, READ
from swift_hapi.protocol.errors import ModelInvalid


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def test_as_many_nodes_as_there_may_be():
    extractor = load_extractor(chain(MAX_NODES - 1, "method", "sigmoid"))
    assert len(extractor.graph.nodes) == MAX_NODES == len(extractor.cuts)
    head = Head(extractor, extractor.resolve("n100"))
    assert head(torch.zeros(2, 3, 8, 8)).shape == (2, 3, 8, 8)
    with pytest.raises(ModelInvalid, match=f"1 to {MAX_NODES} nodes"):
        load_extractor(chain(MAX_NODES, "method", "sigmoid"))


def long_shape(count: int) -> bytes:
    return file([call("a", "method", "reshape", X, -1, *[1] * count)], "a")


def many_tensors(count: int) -> bytes:
    row = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = {f"t{i}": row for i in range(count)}
    return pack(header, document([call("a", "method", "relu", X)], "a"), b"")


def many_ties() -> bytes:
    made = document([call("a", "method", "relu", X)], "a")
    made["ties"] = {f"a{i}": "t" for i in range(MAX_TENSORS)}
    row = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return pack({"t": row}, made, b"")


def taken_apart(*args, **kwargs) -> bytes:
    """Of 2^23 elements, which lie along one dimension."""
    nodes = [
        call("w", "function", "torch.zeros", {"tuple": [2**23]}),
        call("u", "function", "torch.unbind", *args, **kwargs),
        call("end", "method", "relu", X),
    ]
    return file(nodes, "end")


COSTLY = {
    "a header of many bytes": (
        lambda: with_header(b'{"a":"' + b"x" * MAX_HEADER + b'"}'), "a header of"),
    "many values": (lambda: with_header(b"[" + b"0," * 300_000 + b"0]"), "values in a header"),
    "many values in the document": (
        lambda: with_header(json.dumps(
            {"__metadata__": {"hapi": "[" + "[]\\u002c" * 200_000 + "[]]"}}).encode()
            .replace(b"\\\\u", b"\\u")),
        "values in a header"),
    "many tensors": (lambda: many_tensors(MAX_TENSORS + 1), "too many tensors"),
    "many tied tensors": (many_ties, "too many tensors"),
    "values kept": (lambda: costly.keep(1_000, False), "for too long"),
    "layers": (lambda: costly.encode(300, True), "more than 5000 parts"),
    "attention": (lambda: costly.encode(900, False), "more than 5000 parts"),
    "lists in a row": (lambda: costly.hand_on("stack", 800, 100), "take and give more than"),
    "slices of a list": (lambda: costly.hand_on("slice", 800, 100), "too many items"),
    "a long list": (lambda: costly.hand_on("stack", 4_000, 1), "too many pieces"),
    "dimensions": (lambda: chain(20, "method", "unsqueeze", 1), "more than 16 dimensions"),
    "dimensions at once": (lambda: long_shape(1_000), "more than 16 dimensions"),
    "pieces": (lambda: taken_apart({"ref": "w"}), "too many pieces"),
    "pieces by keyword": (lambda: taken_apart(input={"ref": "w"}), "too many pieces"),
    "pieces, dimension by another name": (
        lambda: taken_apart({"ref": "w"}, axis=0), "too many pieces"),
    "slow operations": (lambda: costly.chain_of("interpolate", 4_000), "slow operations"),
    "many operations": (lambda: costly.chain_of("response", 2_000), "too many tensors are made"),
    "slow constants": (lambda: costly.from_nothing("conv", 50, 256), "computed from weights"),
    "large constants": (lambda: costly.from_nothing("chain", 500, 500), "made of weights"),
}  # fmt: skip


@pytest.mark.parametrize("case", COSTLY)
def test_what_costs_much_is_refused(case):
    make, words = COSTLY[case]
    with pytest.raises(ModelInvalid, match=words):
        load_extractor(make())


@pytest.mark.parametrize("kind", sorted(costly.COSTLY))
def test_costly_files_are_loaded_or_refused(kind):
    rng = random.Random(7)
    for _ in range(2):
        try:
            assert isinstance(load_extractor(costly.COSTLY[kind](rng)), Extractor)
        except ModelInvalid as error:
            assert error.detail


@pytest.mark.parametrize(
    "how",
    [("split", 4), ("split", [3000, 1096]), ("chunk", 1024), ("tensor_split", 16), ("unbind",)],
)
def test_long_tensors_may_be_taken_into_few_pieces(how):
    shape = (3, 4096) if how[0] != "unbind" else (3, 1024)
    nodes = [
        call("u", "method", how[0], X, *how[1:], *([] if how[0] == "unbind" else [2])),
        call("end", "function", "operator.getitem", {"ref": "u"}, 0),
    ]
    if how[0] == "unbind":
        nodes[0]["args"].append(2)
    made = load_extractor(file(nodes, "end", shape=shape))
    assert made.cuts[-1].shape[0] == 3


def test_time_is_limited():
    data = chain(50, "method", "sigmoid")
    load_extractor(data)
    with pytest.raises(ModelInvalid, match="node 'n.*too long"):
        load_extractor(data, dataclasses.replace(DEFAULT, seconds=1e-9))


def test_what_torch_does_first_is_not_the_files_fault():
    """In a new process: it imports for longer than this file may take."""
    program = (
        "from benchmarks.building import chain\n"
        "from swift_hapi.graph.caps import Caps\n"
        "from swift_hapi.graph.extractor import load_extractor\n"
        "load_extractor(chain(3, 'method', 'sigmoid'), Caps(seconds=0.1))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_one_node_may_not_do_it_all():
    """A run is given up between nodes only."""
    data = file([call("a", "function", "torch.matmul", X, X), call("b", "method", "relu",
                {"ref": "a"})], "b", shape=(3, 64, 64))  # fmt: skip
    work = load_extractor(data).flops - 3 * 64**2 * ELEMENT
    assert work > 2 * 3 * 64**3 + 3 * 64**2 * (ELEMENT + 2 * READ)
    load_extractor(data, Caps(node_flops=1.1 * work))
    with pytest.raises(ModelInvalid, match="node 'a'.*operations in one node"):
        load_extractor(data, Caps(node_flops=0.9 * work))
    # Several nodes may do more together.
    load_extractor(chain(100, "method", "sigmoid"), Caps(node_flops=192 * 400))


def sines(count: int) -> bytes:
    """So many of an image of 2048 pixels a side, enlarged from eight."""
    nodes = [call("up", "function", "functional.interpolate", X, {"tuple": [2048, 2048]})]
    for i in range(count):
        nodes.append(call(f"s{i}", "method", "sin", {"ref": nodes[-1]["name"]}))
    nodes.append(call("end", "method", "amax", {"ref": nodes[-1]["name"]}, {"tuple": [2, 3]}))
    return file(nodes, "end")


def test_an_element_is_more_work_than_an_operation_in_a_matrix_product():
    pixels = 3 * 2048**2
    few = load_extractor(sines(10)).flops
    assert few >= 10 * 400 * pixels
    # Less than a minute of one core; this file would take many.
    assert load_extractor(sines(100)).flops == pytest.approx(few + 90 * 400 * pixels)
    with pytest.raises(ModelInvalid, match="4e\\+12 operations per sample"):
        load_extractor(sines(4900))


def test_another_look_at_the_same_memory_is_no_work():
    nodes = [call("p", "method", "permute", X, 0, 2, 3, 1),
             call("v", "method", "unsqueeze", {"ref": "p"}, 1),
             call("e", "method", "expand", {"ref": "v"}, -1, 1000, -1, -1, -1)]  # fmt: skip
    assert load_extractor(file(nodes, "e")).flops == 0


def test_what_is_made_of_weights_may_grow_with_them():
    caps = Caps(constant_bytes=10, constant_flops=100).with_weights(1000)
    assert (caps.constant_bytes, caps.constant_flops) == (8010, 500_100)


def test_text_that_is_no_unicode_is_refused():
    with pytest.raises(ModelInvalid):
        load_extractor(with_header(b'{"__metadata__":{"hapi":"\\ud800"}}'))


@pytest.mark.parametrize("value", [2, 255])
def test_booleans_are_0_or_1(value):
    row = {"dtype": "BOOL", "shape": [5], "data_offsets": [0, 5]}
    made = document([call("m", "attr", "t"), call("a", "method", "mul", X, {"ref": "m"})], "a",
                    shape=(5,))  # fmt: skip
    for node in made["nodes"]:
        if node["op"] == "attr":
            del node["args"]
    load_extractor(pack({"t": row}, made, b"\0\1\0\1\1"))
    with pytest.raises(ModelInvalid, match="neither 0 nor 1"):
        load_extractor(pack({"t": row}, made, b"\0\1\0\1" + bytes([value])))


def test_a_module_is_bound_without_touching_the_one_it_is_made_from():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    bare = build(spec_of(layer))
    bound = bind(bare, "a.b", {f"a.b.{key}": value for key, value in layer.state_dict().items()})
    assert {tensor.device.type for tensor in bare.state_dict().values()} == {"meta"}
    assert {tensor.device.type for tensor in bound.state_dict().values()} == {"cpu"}
    assert bound.self_attn.out_proj.weight.data_ptr() == (
        layer.self_attn.out_proj.weight.data_ptr()
    )
    x = torch.randn(2, 5, 8)
    with torch.inference_mode():
        assert torch.equal(bound(x), layer(x))


def test_constants_are_looked_up_not_searched():
    """A program of one node asks for the constants it reads, however many there are."""

    class Counted(dict):
        seen = 0

        def items(self):
            raise AssertionError("all of them were looked at")

        def __getitem__(self, name):
            self.seen += 1
            return super().__getitem__(name)

    nodes = load_extractor(chain(1, "method", "relu")).graph.nodes
    known = Counted({f"c{i}": i for i in range(1000)})
    Program(nodes[1:], "input", "n0", lambda node: torch.relu, known)
    assert known.seen == 0
