"""What ``hapi put`` reads from local disk: a class-per-folder directory, tars in WebDataset
layout, or files that a table names.

Samples are references with a size; their bytes are read when a shard is built, so memory does
not grow with the dataset.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hapi_compute.data.errors import BadSource, DatasetError
from hapi_compute.data.keys import Keys, readable
from hapi_compute.data.labels import RawTable, parse_table
from swift_hapi.samples.shard import KINDS

#: extensions of tables
TABLES = (".csv", ".jsonl", ".ndjson")


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
        """:raises BadSource: the file is shorter than it was when it was looked at"""
        with open(self.path, "rb") as stream:
            stream.seek(self.offset)
            content = stream.read(self.size)
        if len(content) != self.size:
            raise BadSource(f"{self.path}: {len(content)} bytes, there were {self.size}")
        return content


@dataclass(frozen=True)
class SourceSample:
    """One sample of ``size`` bytes.

    ``where`` is how to name it to a human; ``key`` its key in the shard, unique in the dataset;
    ``tag`` tells its bytes from others without reading them, "" where nothing does; ``name`` is
    the file's, as the source has it, in UTF-8, "" where there is none.
    """

    key: str
    label: int
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

    ``far``: reading takes so long that samples are looked at only when a shard is built.
    """

    samples: tuple[SourceSample, ...]
    classes: tuple[str, ...]
    unusable: tuple[str, ...] = field(default=())  #: "place: why", one for each refused file
    far: bool = False


def open_source(path: Path, table: RawTable | None = None) -> Source:
    """Look through ``path``: a directory of class folders, a directory of tars, one tar, or a CSV
    or JSONL table of files (``key`` or ``path``, from the table's folder) and labels.

    :param table: labels of the files of a directory, by their paths from there
    :raises DatasetError: none of these, or it holds no sample
    """
    if table is not None and path.is_dir():
        source = _listed(path, table)
    elif table is not None:
        raise DatasetError(f"{path}: is no directory, whose files a table could label")
    elif path.is_file() and path.suffix.lower() in TABLES:
        source = _listed(path.parent, parse_table(path.read_bytes(), str(path)))
    elif path.is_file():
        source = _tars([path])
    elif path.is_dir():
        tars = sorted(path.glob("*.tar"), key=lambda tar: os.fsencode(tar.name))
        source = _tars(tars) if tars else _folders(path)
    else:
        raise DatasetError(f"{path}: is neither a directory nor a tar file")
    if not source.samples and not source.unusable:
        raise DatasetError(f"{path}: holds no sample ({', '.join(KINDS)})")
    return source


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted((f for f in folders if not f.startswith(".")), key=os.fsencode)
        for name in sorted(names, key=os.fsencode):
            if not name.startswith("."):
                yield Path(root, name)


def _folders(root: Path) -> Source:
    folders = sorted(
        (each for each in root.iterdir() if each.is_dir() and not each.name.startswith(".")),
        key=lambda folder: os.fsencode(folder.name),
    )
    if not folders:
        loose = any(path.suffix.lower().removeprefix(".") in KINDS for path in root.iterdir())
        hint = "; it holds images: put them into one folder for each class" if loose else ""
        raise DatasetError(f"{root}: holds neither tars nor a folder for each class{hint}")
    keys, samples, unusable = Keys(), [], []
    for folder in folders:
        if readable(folder.name) != folder.name:
            raise DatasetError(f"{root}: folder {readable(folder.name)!r}: its name is not UTF-8")
    for label, folder in enumerate(folders):
        for path in _files(folder):
            relative = str(path.relative_to(root))
            extension = path.suffix.lower().removeprefix(".")
            if extension not in KINDS:
                unusable.append(f"{path}: is no {', '.join(KINDS)}")
                continue
            key = keys.unique(relative[: -len(path.suffix)])
            samples.append(of_file(key, label, path, relative))
    return Source(tuple(samples), tuple(folder.name for folder in folders), tuple(unusable))


def of_file(key: str, label: int, path: Path, name: str) -> SourceSample:
    """A sample that is a whole file; its extension is one of ``KINDS``.

    :param name: its path in the source
    """
    extension = path.suffix.lower().removeprefix(".")
    size = path.stat().st_size
    content = FileContent(path, 0, size)
    return SourceSample(
        key, label, extension, size, str(path), content, name=readable(name)
    )


def _listed(root: Path, table: RawTable) -> Source:
    """The files that a table names, in its order."""
    numbers, classes = table.numbered()
    keys, samples, unusable = Keys(), [], []
    for name, label in numbers.numbers.items():
        path = Path(root, name)
        if path.suffix.lower().removeprefix(".") not in KINDS:
            unusable.append(f"{path}: is no {', '.join(KINDS)}")
        elif not path.is_file():
            unusable.append(f"{path}: there is no such file")
        else:
            key = keys.unique(name[: -len(path.suffix)])
            samples.append(of_file(key, label, path, name))
    return Source(tuple(samples), classes, tuple(unusable))


def _tars(paths: list[Path]) -> Source:
    keys, samples, unusable, top = Keys(), [], [], -1
    for path in paths:
        for name, label, extension, member in _tar_members(path, unusable):
            where = f"{path}:{member.name}"
            # Two tars may use the same keys: their own name comes first.
            unique = keys.unique(f"{path.stem}/{name}" if len(paths) > 1 else name)
            samples.append(
                SourceSample(
                    unique, label, extension, member.size, where,
                    FileContent(path, member.offset_data, member.size),
                    name=readable(f"{path.name}:{member.name}"),
                )
            )  # fmt: skip
            top = max(top, label)
    return Source(tuple(samples), tuple(str(n) for n in range(top + 1)), tuple(unusable))


def _tar_members(path: Path, unusable: list[str]):
    """(key, label, extension, member) of each labelled sample, in the tar's order."""
    groups: dict[str, dict[str, tarfile.TarInfo]] = {}
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                folder, slash, base = member.name.removeprefix("./").rpartition("/")
                stem, _, extension = base.partition(".")
                if member.isreg() and stem:
                    groups.setdefault(folder + slash + stem, {})[extension.lower()] = member
            for key, parts in groups.items():
                extension = next((each for each in KINDS if each in parts), None)
                if extension is None:
                    continue
                label = _label(archive, parts)
                if label is None:
                    unusable.append(f"{path}:{key}: .cls or .json holds no class number")
                    continue
                yield key, label, extension, parts[extension]
    except tarfile.TarError as error:
        raise DatasetError(f"{path}: no readable tar: {error}") from None


def _label(archive: tarfile.TarFile, parts: dict[str, tarfile.TarInfo]) -> int | None:
    if "cls" in parts:
        text = archive.extractfile(parts["cls"]).read(64)
        return int(text) if re.fullmatch(rb"\s*\d{1,9}\s*", text) else None
    if "json" not in parts:
        return None
    try:
        label = json.loads(archive.extractfile(parts["json"]).read(1 << 14))["label"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    known = isinstance(label, int) and not isinstance(label, bool) and 0 <= label < 10**9
    return label if known else None
