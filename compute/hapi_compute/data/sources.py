"""What ``hapi put`` reads: a class-per-folder directory, or tars in WebDataset layout.

Samples are references with a size; their bytes are read when a shard is built, so memory does
not grow with the dataset.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hapi_compute.data.errors import BadSource, DatasetError
from swift_hapi.samples.shard import KINDS

_UNSAFE = re.compile(r"[^A-Za-z0-9_/-]+")
_LONGEST_KEY = 80


@dataclass(frozen=True)
class SourceSample:
    """One sample on local disk: ``size`` bytes at ``offset`` of ``path``.

    ``where`` is how to name it to a human; ``key`` its key in the shard, unique in the dataset.
    """

    key: str
    label: int
    extension: str
    path: Path
    offset: int
    size: int
    where: str

    def read(self) -> bytes:
        """:raises BadSource: the file is shorter than it was when it was looked at"""
        with open(self.path, "rb") as stream:
            stream.seek(self.offset)
            content = stream.read(self.size)
        if len(content) != self.size:
            raise BadSource(f"{self.where}: {len(content)} bytes, there were {self.size}")
        return content


@dataclass(frozen=True)
class Source:
    """All samples in a fixed order, and the classes their labels count through."""

    samples: tuple[SourceSample, ...]
    classes: tuple[str, ...]
    unusable: tuple[str, ...] = field(default=())  #: "place: why", one for each refused file


def open_source(path: Path) -> Source:
    """Look through ``path``: a directory of class folders, a directory of tars, or one tar.

    :raises DatasetError: none of these, or it holds no sample
    """
    if path.is_file():
        source = _tars([path], path.parent)
    elif path.is_dir():
        tars = sorted(path.glob("*.tar"), key=lambda tar: os.fsencode(tar.name))
        source = _tars(tars, path) if tars else _folders(path)
    else:
        raise DatasetError(f"{path}: is neither a directory nor a tar file")
    if not source.samples and not source.unusable:
        raise DatasetError(f"{path}: holds no sample ({', '.join(KINDS)})")
    return source


def safe_key(text: str) -> str:
    """``text`` in characters that every tool and every tar header takes; not yet unique."""
    key = _UNSAFE.sub("_", text).strip("/") or "_"
    if len(key) > _LONGEST_KEY:
        key = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return key


class _Keys:
    """Hands out keys; a second sample that wants the same one gets a number behind it."""

    def __init__(self):
        self._taken: set[str] = set()

    def unique(self, text: str) -> str:
        key = wanted = safe_key(text)
        number = 1
        while key in self._taken:
            number += 1
            key = f"{wanted}-{number}"
        self._taken.add(key)
        return key


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
    keys, samples, unusable = _Keys(), [], []
    for label, folder in enumerate(folders):
        for path in _files(folder):
            relative = str(path.relative_to(root))
            extension = path.suffix.lower().removeprefix(".")
            if extension not in KINDS:
                unusable.append(f"{path}: is no {', '.join(KINDS)}")
                continue
            key = keys.unique(relative[: -len(path.suffix)])
            size = path.stat().st_size
            samples.append(SourceSample(key, label, extension, path, 0, size, str(path)))
    return Source(tuple(samples), tuple(folder.name for folder in folders), tuple(unusable))


def _tars(paths: list[Path], root: Path) -> Source:
    keys, samples, unusable, top = _Keys(), [], [], -1
    for path in paths:
        for name, label, extension, member in _tar_members(path, unusable):
            where = f"{path}:{member.name}"
            # Two tars may use the same keys: their own name comes first.
            unique = keys.unique(f"{path.stem}/{name}" if len(paths) > 1 else name)
            samples.append(
                SourceSample(
                    unique, label, extension, path, member.offset_data, member.size, where
                )
            )
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
                text = archive.extractfile(parts["cls"]).read(64) if "cls" in parts else b""
                if not re.fullmatch(rb"\s*\d{1,9}\s*", text):
                    unusable.append(f"{path}:{key}: .cls holds no class number")
                    continue
                yield key, int(text), extension, parts[extension]
    except tarfile.TarError as error:
        raise DatasetError(f"{path}: no readable tar: {error}") from None
