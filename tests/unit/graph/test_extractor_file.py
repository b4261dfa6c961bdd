"""The form of extractor files: what is in them, and that they are refused when it is odd."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch import nn

from benchmarks.building import pack, unpack
from swift_hapi.graph.extractor import load_extractor, save_extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.errors import ModelInvalid
from tests.unit.graph.models import Small


def edited(data: bytes, edit: Callable[[dict], None]) -> bytes:
    header, document, rest = unpack(data)
    edit(document)
    return pack(header, document, rest)


def node(document: dict, name: str) -> dict:
    return next(row for row in document["nodes"] if row["name"] == name)


def test_file_form(small):
    header, document, _ = unpack(small)
    assert set(header["__metadata__"]) == {"hapi"}
    assert document["format"] == "swift-hapi-extractor"
    assert document["input"] == {"shape": [3, 8, 8], "dtype": "float32", "fixed": False}
    assert set(header) - {"__metadata__"} == set(Small().state_dict())


def test_repacked_file_loads(small):
    """The checks below are about the edits, not about how the test packs."""
    load_extractor(edited(small, lambda document: None))


def test_tied_weights_are_stored_once(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.two(self.one(x))

    model = Tied().eval()
    path = tmp_path / "tied.safetensors"
    save_extractor(make_extractor(model, None, (6,)), path)
    loaded = load_extractor(path)
    assert set(loaded.tensors) == set(model.state_dict())
    assert loaded.tensors["one.weight"] is loaded.tensors["two.weight"]
    assert loaded.weight_bytes == 4 * (36 + 6 + 6)
    x = torch.rand(2, 6)
    with torch.inference_mode():
        assert torch.equal(Head(loaded, loaded.cuts[-1])(x), model(x))


def _set(path: str, value: object) -> Callable[[dict], None]:
    """``a.b`` in the document set to value; ``nodes:NAME.key`` picks a node."""

    def edit(document: dict) -> None:
        at: object = document
        *parts, last = path.split(".")
        for part in parts:
            at = node(document, part[6:]) if part.startswith("nodes:") else at[part]
        at[last] = value

    return edit


def _add_node(**row) -> Callable[[dict], None]:
    return lambda document: document["nodes"].insert(1, row)


def _drop(key: str) -> Callable[[dict], None]:
    return lambda document: document.pop(key)


def _first_output(**row) -> Callable[[dict], None]:
    """Put a node in front of everything else: conv reads it instead of the input."""

    def edit(document: dict) -> None:
        document["nodes"].insert(1, {"name": "odd", **row})
        node(document, "conv")["args"] = [{"ref": "odd"}]

    return edit


X = {"ref": "input"}
BAD_DOCUMENTS = {
    "format": (_set("format", "other"), "no extractor file"),
    "later version": (_set("version", 2), "version 2, this program reads 1"),
    "version is a boolean": (_set("version", True), "version True"),
    "version is a float": (_set("version", 1.0), "version 1.0"),
    # Of an unknown version, nothing more is known: not what members it should have.
    "later version with other members": (
        lambda d: (d.update(version=3, more=1), d.pop("ties")), "version 3"),
    "extra member": (_set("more", 1), "more"),
    "missing member": (_drop("ties"), "ties"),
    "no nodes": (_set("nodes", []), "nodes"),
    "too many nodes": (lambda d: d.update(nodes=d["nodes"] * 700), "nodes"),
    "node is a number": (lambda d: d["nodes"].append(7), "node"),
    "dunder in name": (_set("nodes:relu.name", "a b"), "name"),
    "name with dot": (_set("nodes:relu.name", "relu.x"), "name"),
    "long name": (_set("nodes:relu.name", "r" * 500), "name"),
    "duplicate name": (_add_node(name="conv", op="function", target="math.ceil", args=[1.5]),
                       "two nodes"),
    "second input": (_add_node(name="more", op="input"), "input"),
    "unknown op": (_set("nodes:relu.op", "exec"), "relu"),
    "unknown function": (_first_output(op="function", target="os.system", args=["ls"]), "odd"),
    "unknown method": (_first_output(op="method", target="__reduce__", args=[X]), "odd"),
    "dunder attribute": (
        _first_output(op="function", target="getattr", args=[X, "__class__"]), "getattr"),
    "getattr with default": (
        _first_output(op="function", target="getattr", args=[X, "shape", 3]), "getattr"),
    "undefined reference": (_set("nodes:relu.args", [{"ref": "nowhere"}]), "nowhere"),
    "reference forward": (_set("nodes:norm.args", [{"ref": "fc"}]), "fc"),
    "unknown module": (_set("nodes:relu.target", "other"), "relu"),
    "unknown module type": (_set("modules.relu.type", "Exec"), "Exec"),
    "module setting missing": (lambda d: d["modules"]["conv"]["config"].pop("groups"), "groups"),
    "module setting unknown": (_set("modules.relu.config", {"inplace": True, "x": 1}), "x"),
    "module setting of bad type": (lambda d: d["modules"]["conv"]["config"].update(groups="2"),
                                   "groups"),
    "huge channels": (lambda d: d["modules"]["conv"]["config"].update(out_channels=10**9),
                      "conv"),
    "no statistics": (lambda d: d["modules"]["norm"]["config"].update(track_running_stats=False),
                      "track_running_stats"),
    "wrong shape": (lambda d: d["modules"]["fc"]["config"].update(out_features=6), "fc.weight"),
    "module never used": (
        lambda d: d["modules"].update(more={"type": "Sigmoid", "config": {}}), "never used"),
    "output unknown": (_set("output", "nowhere"), "output"),
    "output is a constant": (_set("output", "scale"), "scale"),
    "input shape huge": (_set("input.shape", [3, 10**9, 10]), "positive"),
    "input shape empty": (_set("input.shape", []), "dimensions"),
    "input shape of booleans": (_set("input.shape", [3, True, 8]), "positive"),
    "input dtype": (_set("input.dtype", "float16"), "float32 or int64"),
    "input fixed": (_set("input.fixed", 1), "fixed or not"),
    "input member": (_set("input.more", 1), "input"),
    "embedding that is renormed": (
        _first_output(op="function", target="functional.embedding", args=[X, X],
                      kwargs={"max_norm": 1.0}), "max_norm"),
    "constants unknown": (_set("constants", ["nowhere"]), "nowhere"),
    "tie to nothing": (_set("ties", {"a": "b"}), "tied"),
    "tensor missing": (_set("nodes:scale.target", "other"), "other"),
    "keyword out": (_first_output(op="function", target="torch.add", args=[X, X],
                                  kwargs={"out": X}), "out"),
    "bad keyword": (_first_output(op="function", target="torch.add", args=[X, X],
                                  kwargs={"__x": 1}), "keyword"),
    "string argument": (_first_output(op="function", target="torch.add", args=[X, "a;b"]), "odd"),
    "odd argument": (_first_output(op="function", target="torch.add", args=[X, {"call": 1}]),
                     "odd"),
    "huge integer": (_first_output(op="function", target="operator.add", args=[X, 10**30]),
                     "odd"),
    "deep nesting": (_first_output(op="function", target="torch.cat",
                                   args=[json.loads("[" * 20 + "]" * 20)]), "odd"),
    "list times integer": (_first_output(op="function", target="operator.mul",
                                         args=[[0], 10**12]), "sequence"),
    "power of integers": (_first_output(op="function", target="operator.pow",
                                        args=[10, 10**10]), "powers"),
    "explosion": (_first_output(op="method", target="repeat", args=[X, 100, 100, 100, 100]),
                  "bytes"),
    "expansion": (_first_output(op="function", target="torch.zeros", args=[2**30]), "bytes"),
    "explosion inside a module": (
        lambda d: (
            d["modules"].update(odd={"type": "LocalResponseNorm", "config": {
                "size": 10**9, "alpha": 1.0, "beta": 1.0, "k": 1.0}}),
            _first_output(op="module", target="odd", args=[X])(d),
        ), "pad must be"),
    "writes into weights": (_first_output(op="method", target="add_",
                                          args=[{"ref": "scale"}, 1]), "odd"),
    "does not run": (_first_output(op="method", target="view", args=[X, 7]), "odd"),
    "random": (_first_output(op="function", target="functional.dropout", args=[X, 0.5]),
               "training"),
    "random by keyword": (_first_output(op="function", target="functional.dropout", args=[X],
                                        kwargs={"training": True}), "training"),
    "batch statistics": (_first_output(op="function", target="functional.batch_norm",
                                       args=[X, None, None], kwargs={"training": True}),
                         "batch statistics"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_DOCUMENTS)
def test_bad_documents_are_refused(small, case):
    edit, culprit = BAD_DOCUMENTS[case]
    with pytest.raises(ModelInvalid) as caught:
        load_extractor(edited(small, edit))
    assert culprit in caught.value.detail


def test_writing_into_weights_is_refused_through_a_view(small):
    def edit(document: dict) -> None:
        rows = document["nodes"]
        at = rows.index(node(document, "scale"))
        rows[at + 1 : at + 1] = [
            {"name": "view", "op": "method", "target": "reshape", "args": [{"ref": "scale"}, 4]},
            {"name": "odd", "op": "method", "target": "mul_", "args": [{"ref": "view"}, 2]},
        ]

    with pytest.raises(ModelInvalid, match="own weights"):
        load_extractor(edited(small, edit))
