"""Which samples go into which shard, and a shard's bytes: both decided by their input alone.

Equal input gives equal bytes, hence equal ETags, hence an upload that can be taken up where it
was broken off.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Sequence

from hapi_compute.data.order import permutation

_BLOCK = 512
_LABEL_BYTES = 2 * _BLOCK  #: header and content of a .cls member
#: two empty blocks, and then up to the end of a record of 20 blocks
_END = 2 * _BLOCK + 19 * _BLOCK


def shuffled(count: int, seed: int) -> list[int]:
    """The order in which samples are packed, so that shards are alike and classes mixed."""
    return permutation(count, seed, "pack").tolist()


def packed_size(size: int, key: str = "", extension: str = "") -> int:
    """Bytes that a sample of ``size`` bytes takes in a shard, its label included."""
    names = sum(_name_bytes(f"{key}.{each}") for each in ("cls", extension))
    return _BLOCK + -(-size // _BLOCK) * _BLOCK + _LABEL_BYTES + names


def _name_bytes(name: str) -> int:
    """What a name takes that does not fit into a header: one of its own with a pax record."""
    if name.isascii() and len(name) <= tarfile.LENGTH_NAME:
        return 0
    record = len(" path=\n") + len(name.encode()) + 5  # and its own length, of at most 5 digits
    return _BLOCK + -(-record // _BLOCK) * _BLOCK


def pack(needs: Sequence[int], max_samples: int, max_bytes: int) -> list[list[int]]:
    """Cut a sequence of samples into shards.

    :param needs: :func:`packed_size` of each sample, in packing order
    :returns: positions in ``needs``, shard by shard; a sample larger than ``max_bytes`` gets a
        shard of its own
    """
    shards: list[list[int]] = []
    room = -1
    for position, need in enumerate(needs):
        if not shards or need > room or len(shards[-1]) >= max_samples:
            shards.append([])
            room = max_bytes - _END
        shards[-1].append(position)
        room -= need
    return shards


def build_tar(samples: Iterable[tuple[str, str, int | None, bytes]]) -> bytes:
    """A WebDataset tar.

    :param samples: (key, extension, label, content); no ``.cls`` is written for None
    """
    stream = io.BytesIO()
    # Names of ASCII that are short enough make plain ustar headers.
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for key, extension, label, content in samples:
            if label is not None:
                _add(archive, f"{key}.cls", str(label).encode())
            _add(archive, f"{key}.{extension}", content)
    return stream.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    # TarInfo's own defaults are mtime 0, uid and gid 0 and no names: nothing of this machine.
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
