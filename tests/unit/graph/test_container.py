"""Weights within their file, and files that are refused before anything in them is understood."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

import pytest

from benchmarks.building import pack, unpack, with_header
from swift_hapi.graph.extractor import load_extractor
from swift_hapi.protocol.errors import ModelInvalid


def test_weights_are_aligned_after_loading(small):
    for name, tensor in load_extractor(small).tensors.items():
        assert tensor.data_ptr() % 16 == 0, name


def _header(**changes) -> Callable[[bytes], bytes]:
    def make(data: bytes) -> bytes:
        header, document, rest = unpack(data)
        header.update(changes)
        return pack(header, document, rest)

    return make


def _duplicate_tensor(data: bytes) -> bytes:
    header, document, rest = unpack(data)
    text = pack(header, document, b"")[8:]
    double = text[:-1] + b', "fc.bias": ' + json.dumps(header["fc.bias"]).encode() + b"}"
    return with_header(double) + rest


def _second_metadata_key(data: bytes) -> bytes:
    header, document, rest = unpack(data)
    header["__metadata__"] = {"hapi": json.dumps(document), "more": "x"}
    return with_header(json.dumps(header).encode()) + rest


F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
BAD_FILES = {
    "empty": lambda data: b"",
    "short": lambda data: data[:7],
    "header of 2^63 bytes": lambda data: struct.pack("<Q", 2**63) + data[8:],
    "header longer than the file": lambda data: struct.pack("<Q", len(data)) + data[8:],
    "no JSON": lambda data: with_header(b"{x}"),
    "no object": lambda data: with_header(b"[]"),
    "nested": lambda data: with_header(b"[" * 100_000 + b"]" * 100_000),
    "no UTF-8": lambda data: with_header(b'{"\xff":1}'),
    "NaN": lambda data: with_header(b'{"__metadata__":NaN}'),
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
