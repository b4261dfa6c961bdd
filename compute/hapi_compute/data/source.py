"""What ``hapi put`` packs, wherever it comes from.

Samples are references with a size; their bytes are read when a shard is built, so memory does
not grow with the dataset.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hapi_compute.data.errors import BadSource
from hapi_compute.data.keys import readable


class Content(Protocol):
    """The bytes of one sample, wherever they lie."""

    def read(self) -> bytes:
        """:raises HapiError: they cannot be had"""


@dataclass(frozen=True)
class FileContent:
    """``size`` bytes at ``offset`` of ``path``."""

    path: Path
    offset: int
    size: int

    def read(self) -> bytes:
        """:raises BadSource: the file cannot be read, or is shorter than it was when it was
        looked at"""
        try:
            with open(self.path, "rb") as stream:
                stream.seek(self.offset)
                content = stream.read(self.size)
        except OSError as error:
            raise _bad(self.path, _why(error)) from None
        if len(content) != self.size:
            raise _bad(self.path, f"{len(content)} bytes, there were {self.size}")
        return content


@dataclass(frozen=True)
class SourceSample:
    """One sample of ``size`` bytes.

    ``label`` is None where there are none; ``where`` is how to name it to a human; ``key`` its key
    in the shard, unique in the dataset; ``tag`` tells its bytes from others without reading them,
    "" where nothing does; ``name`` is the file's, as the source has it, in UTF-8, "" where there
    is none.
    """

    key: str
    label: int | None
    extension: str
    size: int
    where: str
    content: Content
    tag: str = ""
    name: str = ""

    def read(self) -> bytes:
        """:raises HapiError: its bytes cannot be had"""
        return self.content.read()


@dataclass(frozen=True)
class Source:
    """All samples in a fixed order, and the classes their labels count through.

    :param unusable: "place: why", one for each refused file
    :param far: reading takes so long that samples are looked at only when a shard is built
    :param ignored: files that are called like no image
    :param notes: what is probably not meant; for people
    """

    samples: tuple[SourceSample, ...]
    classes: tuple[str, ...]
    unusable: tuple[str, ...] = ()
    far: bool = False
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def of_file(key: str, label: int | None, path: Path, name: str) -> SourceSample:
    """A sample that is a whole file; its extension is one of ``KINDS``.

    :param name: its path in the source
    :raises BadSource: it is no file, or cannot be looked at
    """
    try:
        found = path.stat()
    except OSError as error:
        link = isinstance(error, FileNotFoundError) and path.is_symlink()
        raise _bad(path, "is a link to nothing" if link else _why(error)) from None
    if not stat.S_ISREG(found.st_mode):
        raise _bad(path, "is no regular file")
    extension = path.suffix.lower().removeprefix(".")
    content = FileContent(path, 0, found.st_size)
    return SourceSample(
        key, label, extension, found.st_size, str(path), content, name=readable(name)
    )


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def _bad(path: Path, reason: str) -> BadSource:
    return BadSource(f"{path}: {reason}", reason=reason)
