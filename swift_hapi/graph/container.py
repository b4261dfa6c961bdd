"""The safetensors container, written deterministically and read with every check.

Same tensors and metadata -> same bytes: one metadata key, tensors ordered by element size (so
that each starts aligned) and name. Reading checks the header's length before anything is
allocated, refuses duplicate keys, and demands that the tensors fill the file exactly. Each tensor
is read into memory of its own: tensors mapped from a file may be unaligned, and then the
arithmetic libraries give other bits.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from typing import BinaryIO

import numpy as np
import torch

from swift_hapi.graph import codec
from swift_hapi.graph.allocator import own_memory
from swift_hapi.graph.caps import MAX_HEADER, MAX_TENSORS
from swift_hapi.graph.operations import check_name
from swift_hapi.protocol.errors import ModelInvalid

METADATA_KEY = "hapi"
#: of tensors in memory, as PyTorch does it: kernels, and so the last bits, depend on it
_ALIGNMENT = 64

_DTYPES = {
    "F32": torch.float32,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAME_OF = {dtype: name for name, dtype in _DTYPES.items()}


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor."""
    return memoryview(tensor.numpy().reshape(-1).view(np.uint8))


def pieces(tensors: Mapping[str, torch.Tensor], metadata: str) -> Iterator[bytes | memoryview]:
    """The file, piece by piece.

    :raises ModelInvalid: a tensor of a dtype that extractor files do not hold
    """
    header: dict[str, object] = {"__metadata__": {METADATA_KEY: metadata}}
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    at = 0
    for name, tensor in ordered:
        if tensor.dtype not in _NAME_OF:
            raise ModelInvalid(f"tensor '{name}' has dtype {tensor.dtype}, which has no place")
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAME_OF[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + size],
        }
        at += size
    text = codec.dumps(header)
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text))
    yield text
    for _, tensor in ordered:
        yield _bytes_of(tensor.detach().cpu().contiguous())


class _Reader:
    """Reads exact lengths and hashes what it has read."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.sha256 = hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise ModelInvalid("the file is truncated")
        self.sha256.update(data)
        return data

    def fill(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            got = self._file.readinto(view[at:])
            if not got:
                raise ModelInvalid("the file is truncated")
            at += got
        self.sha256.update(view)


def _entry(name: str, row: object) -> tuple[int, int, str, tuple[int, ...]]:
    check_name(name, "a tensor")
    if not isinstance(row, dict) or set(row) != {"dtype", "shape", "data_offsets"}:
        raise ModelInvalid(f"tensor '{name}': malformed header")
    dtype, shape, offsets = row["dtype"], row["shape"], row["data_offsets"]
    numbers = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else [-1]
    if not all(isinstance(x, int) and not isinstance(x, bool) and 0 <= x < 2**40 for x in numbers):
        raise ModelInvalid(f"tensor '{name}': malformed shape or offsets")
    if len(offsets) != 2 or len(shape) > 8 or not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ModelInvalid(f"tensor '{name}': shape or dtype is not one a file can hold")
    begin, end = offsets
    # Tensors without elements may not be huge in other directions.
    if math.prod(size or 1 for size in shape) >= 2**40:
        raise ModelInvalid(f"tensor '{name}': its shape is beyond reason")
    if math.prod(shape) * _DTYPES[dtype].itemsize != end - begin:
        raise ModelInvalid(f"tensor '{name}': its shape does not fit its {end - begin} bytes")
    return begin, end, name, tuple(shape)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _tensor_in(
    room: memoryview, at: int, dtype: torch.dtype, shape: tuple[int, ...]
) -> torch.Tensor:
    """A tensor at an offset of ``room``, which it keeps alive."""
    count = math.prod(shape)
    if not count or not isinstance(room.obj, mmap.mmap):
        # Little memory comes from the heap, where nothing is aligned as it should be.
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(room, dtype=dtype, count=count, offset=at).reshape(shape)


def read(
    file: BinaryIO, size: int, max_bytes: int
) -> tuple[str, dict[str, torch.Tensor], str]:
    """Read a whole file of ``size`` bytes.

    :param max_bytes: of all tensors together
    :returns: metadata text, tensors by name, sha256 of all bytes in hex
    :raises ModelInvalid: not exactly the form :func:`pieces` writes
    """
    reader = _Reader(file)
    if size < 8:
        raise ModelInvalid("the file is truncated")
    (length,) = struct.unpack("<Q", reader.read(8))
    if not 2 <= length <= min(MAX_HEADER, size - 8):
        raise ModelInvalid(f"a header of {length} bytes is more than the file or limit allows")
    header = codec.loads(reader.read(length))
    # One member is no tensor.
    if not isinstance(header, dict) or len(header) > MAX_TENSORS + 1:
        raise ModelInvalid("the header is no object, or names too many tensors")
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or set(metadata) != {METADATA_KEY}:
        raise ModelInvalid(f"the metadata must have exactly one key, '{METADATA_KEY}'")
    text = metadata[METADATA_KEY]
    if not isinstance(text, str):
        raise ModelInvalid("the metadata is no text")

    entries = sorted(_entry(name, row) for name, row in header.items())
    at = 0
    for begin, end, name, _ in entries:
        if begin != at:
            raise ModelInvalid(f"tensor '{name}' leaves a gap or overlaps another")
        at = end
    if at > max_bytes:
        raise ModelInvalid(f"{at} bytes of tensors are more than the {max_bytes} allowed")
    if 8 + length + at != size:
        raise ModelInvalid(f"the file has {size} bytes, its header promises {8 + length + at}")

    tensors = {}
    room = own_memory(sum(map(_aligned, (end - begin for begin, end, _, _ in entries))))
    at = 0
    for begin, end, name, shape in entries:
        tensor = _tensor_in(room, at, _DTYPES[header[name]["dtype"]], shape)
        at += _aligned(end - begin)
        view = _bytes_of(tensor)
        reader.fill(view)
        if tensor.dtype == torch.bool and tensor.view(torch.uint8).gt(1).any():
            raise ModelInvalid(f"tensor '{name}' holds a boolean that is neither 0 nor 1")
        tensors[name] = tensor
    return text, tensors, reader.sha256.hexdigest()
