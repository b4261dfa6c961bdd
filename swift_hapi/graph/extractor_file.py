"""The form of extractor files.

An extractor file is one ``.safetensors`` file with the single metadata key ``hapi``: canonical
JSON with ``format``, ``version``, ``input`` (shape of one sample, dtype, whether the shape is
fixed), ``nodes``, ``modules``, ``output`` (the freeze cut), ``constants`` (tensors that are no
part of the model's state dict) and ``ties`` (names that share another's tensor). Tensors keep the
model's state-dict names. The file is named by the sha256 of its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

import torch

from swift_hapi.graph import codec, container
from swift_hapi.graph.caps import MAX_TENSORS
from swift_hapi.graph.ir import Graph
from swift_hapi.graph.operations import check_name
from swift_hapi.protocol.errors import ModelInvalid

FORMAT = "swift-hapi-extractor"
VERSION = 1
#: what a sample may be: an image or other tensor of numbers, or ids (of tokens, say)
INPUT_DTYPES = {"float32": torch.float32, "int64": torch.int64}
_KEYS = {"format", "version", "input", "nodes", "modules", "output", "constants", "ties"}


@dataclass(frozen=True)
class Contents:
    """What a file holds.

    :param tensors: weights by state-dict name; names that are tied share one
    :param input_shape: of one sample
    :param dtype: of the input
    :param fixed: the graph holds for samples of ``input_shape`` only
    :param constants: names in ``tensors`` that are not in the model's state dict
    """

    graph: Graph
    tensors: Mapping[str, torch.Tensor]
    input_shape: tuple[int, ...]
    dtype: torch.dtype
    fixed: bool
    constants: frozenset[str]


def pieces(contents: Contents) -> Iterator[bytes | memoryview]:
    """The file's bytes, piece by piece; the same contents always give the same bytes.

    :raises ModelInvalid: the graph has something a file cannot hold
    """
    ties, stored, first = {}, {}, {}
    for name in sorted(contents.tensors):
        tensor = contents.tensors[name]
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and key in first:
            ties[name] = first[key]
        else:
            first[key] = name
            stored[name] = tensor
    document = {
        "format": FORMAT,
        "version": VERSION,
        "input": {
            "shape": list(contents.input_shape),
            "dtype": str(contents.dtype).removeprefix("torch."),
            "fixed": contents.fixed,
        },
        "constants": sorted(contents.constants),
        "ties": ties,
        **codec.encode_graph(contents.graph),
    }
    return container.pieces(stored, codec.dumps(document).decode("ascii"))


def read(file: BinaryIO, size: int, max_bytes: int) -> tuple[Contents, str]:
    """Read and check a file of ``size`` bytes; nothing in it is executed.

    :param max_bytes: of all tensors together
    :returns: also the sha256 of its bytes, in hex
    :raises ModelInvalid: anything in the file that is not as it should be
    """
    text, tensors, digest = container.read(file, size, max_bytes)
    document = codec.loads(text)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelInvalid("this is no extractor file")
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        raise ModelInvalid(
            f"the extractor file is of version {str(version)[:20]}, this program reads {VERSION}: "
            "export it again with the release that the storage side runs"
        )
    if set(document) != _KEYS:
        odd = sorted(set(document) ^ _KEYS)
        raise ModelInvalid(f"members missing or unknown: {', '.join(odd)[:200]}")
    constants = document["constants"]
    if not isinstance(constants, list) or not all(isinstance(n, str) for n in constants):
        raise ModelInvalid("'constants' must be an array of names")
    tensors = _untie(tensors, document["ties"])
    for name in set(constants) - set(tensors):
        raise ModelInvalid(f"constant '{name[:80]}' has no tensor")
    graph = codec.decode_graph(document)
    shape, dtype, fixed = _input(document["input"])
    return Contents(graph, tensors, shape, dtype, fixed, frozenset(constants)), digest


def _untie(tensors: dict[str, torch.Tensor], ties: object) -> dict[str, torch.Tensor]:
    if not isinstance(ties, dict) or len(ties) + len(tensors) > MAX_TENSORS:
        raise ModelInvalid("'ties' must be an object, and not name too many tensors")
    whole = dict(tensors)
    for alias, name in ties.items():
        check_name(alias, "a tensor")
        if alias in whole or not isinstance(name, str) or name not in tensors:
            raise ModelInvalid(f"tensor '{alias}' is tied to nothing, or exists twice")
        whole[alias] = tensors[name]
    return whole


def _input(document: object) -> tuple[tuple[int, ...], torch.dtype, bool]:
    if not isinstance(document, dict) or set(document) != {"shape", "dtype", "fixed"}:
        raise ModelInvalid("'input' must have 'shape', 'dtype' and 'fixed'")
    shape, dtype, fixed = document["shape"], document["dtype"], document["fixed"]
    if not isinstance(shape, list) or not 1 <= len(shape) <= 4:
        raise ModelInvalid("the input must have one to four dimensions per sample")
    if not isinstance(dtype, str) or dtype not in INPUT_DTYPES or not isinstance(fixed, bool):
        raise ModelInvalid("the input must be float32 or int64, of a shape that is fixed or not")
    for size in shape:
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 65_536:
            raise ModelInvalid("the input's shape must be positive integers")
    return tuple(shape), INPUT_DTYPES[dtype], fixed
