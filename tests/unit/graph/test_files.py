"""Extractor files: deterministic when written, and refused when anything in them is odd."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable

import pytest
import torch
from torch import nn

from swift_hapi.graph.extractor import load_extractor, save_extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.errors import ModelInvalid


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        x = self.relu(self.norm(self.conv(x))) * self.scale
        return self.fc(torch.flatten(x.mean((2, 3), keepdim=True), 1))


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> bytes:
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("files") / "small.safetensors"
    save_extractor(make_extractor(Small().eval(), None, (3, 8, 8)), path)
    return path.read_bytes()


def unpack(data: bytes) -> tuple[dict, dict, bytes]:
    """header, document, tensor bytes"""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["hapi"]), data[8 + length :]


def pack(header: dict, document: object, rest: bytes) -> bytes:
    header = {**header, "__metadata__": {"hapi": json.dumps(document)}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + rest


def edited(data: bytes, edit: Callable[[dict], None]) -> bytes:
    header, document, rest = unpack(data)
    edit(document)
    return pack(header, document, rest)


def node(document: dict, name: str) -> dict:
    return next(row for row in document["nodes"] if row["name"] == name)


def test_same_model_same_bytes(small, tmp_path):
    torch.manual_seed(3)
    again = make_extractor(Small().eval(), None, (3, 8, 8))
    digest = save_extractor(again, tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == small
    assert digest == f"sha256:{hashlib.sha256(small).hexdigest()}"
    # A file that was read gives the same bytes again.
    loaded = load_extractor(small)
    assert loaded.digest == digest
    save_extractor(loaded, tmp_path / "c.safetensors")
    assert (tmp_path / "c.safetensors").read_bytes() == small
    assert os.listdir(tmp_path) and not [n for n in os.listdir(tmp_path) if n.startswith(".")]


def test_other_weights_other_digest(small):
    torch.manual_seed(4)
    other = make_extractor(Small().eval(), None, (3, 8, 8))
    assert other.digest != load_extractor(small).digest


def test_file_form(small):
    header, document, _ = unpack(small)
    assert set(header["__metadata__"]) == {"hapi"}
    assert document["format"] == "swift-hapi-extractor"
    assert document["input"] == {"shape": [3, 8, 8], "dtype": "float32", "fixed": False}
    assert set(header) - {"__metadata__"} == set(Small().state_dict())


def test_weights_are_aligned_after_loading(small):
    for name, tensor in load_extractor(small).tensors.items():
        assert tensor.data_ptr() % 16 == 0, name


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


def test_nothing_remains_of_a_failed_write(small, tmp_path, monkeypatch):
    target = tmp_path / "x.safetensors"
    target.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_extractor(load_extractor(small), target)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.safetensors"]


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
    "expansion": (_first_output(op="function", target="torch.zeros", args=[10**12]), "bytes"),
    "explosion inside a module": (
        lambda d: (
            d["modules"].update(odd={"type": "LocalResponseNorm", "config": {
                "size": 10**9, "alpha": 1.0, "beta": 1.0, "k": 1.0}}),
            _first_output(op="module", target="odd", args=[X])(d),
        ), "bytes"),
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


def _header(**changes) -> Callable[[bytes], bytes]:
    def make(data: bytes) -> bytes:
        header, document, rest = unpack(data)
        header.update(changes)
        return pack(header, document, rest)

    return make


def _raw_header(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _duplicate_tensor(data: bytes) -> bytes:
    header, document, rest = unpack(data)
    text = pack(header, document, b"")[8:]
    double = text[:-1] + b', "fc.bias": ' + json.dumps(header["fc.bias"]).encode() + b"}"
    return _raw_header(double) + rest


def _second_metadata_key(data: bytes) -> bytes:
    header, document, rest = unpack(data)
    header["__metadata__"] = {"hapi": json.dumps(document), "more": "x"}
    return _raw_header(json.dumps(header).encode()) + rest


F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
BAD_FILES = {
    "empty": lambda data: b"",
    "short": lambda data: data[:7],
    "header of 2^63 bytes": lambda data: struct.pack("<Q", 2**63) + data[8:],
    "header longer than the file": lambda data: struct.pack("<Q", len(data)) + data[8:],
    "no JSON": lambda data: _raw_header(b"{x}"),
    "no object": lambda data: _raw_header(b"[]"),
    "nested": lambda data: _raw_header(b"[" * 100_000 + b"]" * 100_000),
    "no UTF-8": lambda data: _raw_header(b'{"\xff":1}'),
    "NaN": lambda data: _raw_header(b'{"__metadata__":NaN}'),
    "truncated": lambda data: data[:-1],
    "trailing byte": lambda data: data + b"x",
    "duplicate tensor": _duplicate_tensor,
    "second metadata key": _second_metadata_key,
    "tensor overlaps": _header(more=F32),
    "tensor name": _header(**{"../x": F32}),
    "tensor entry": _header(more=[1]),
    "tensor shape": _header(**{"fc.bias": {**F32, "shape": [-1]}}),
    "tensor shape and size": _header(**{"fc.bias": {**F32, "shape": [2]}}),
    "tensor dtype": _header(**{"fc.bias": {**F32, "dtype": "F64"}}),
    "tensor offsets": _header(**{"fc.bias": {**F32, "data_offsets": [4, 0]}}),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_refused(small, case):
    with pytest.raises(ModelInvalid):
        load_extractor(BAD_FILES[case](small))


def test_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_extractor(tmp_path / "nowhere")


def test_index_out_of_range_in_constants_is_refused_at_load(tmp_path):
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.arange(6.0))
            self.register_buffer("index", torch.tensor([1, 5]))

        def forward(self, x):
            return x + self.table[self.index]

    model = Looks().eval()
    extractor = make_extractor(model, None, (2,))
    with torch.inference_mode():
        x = torch.rand(3, 2)
        assert torch.equal(Head(extractor, extractor.cuts[-1])(x), model(x))
    extractor.tensors["index"].fill_(6)
    path = tmp_path / "x.safetensors"
    save_extractor(extractor, path)
    with pytest.raises(ModelInvalid, match="getitem"):
        load_extractor(path)
