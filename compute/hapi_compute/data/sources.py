"""What ``hapi put`` reads from local disk: a class-per-folder directory, tars in WebDataset
layout, or files that a table names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hapi_compute.data.errors import BadSource, DatasetError
from hapi_compute.data.keys import Keys, readable
from hapi_compute.data.labels import RawTable, parse_table
from hapi_compute.data.source import Source, SourceSample, of_file
from hapi_compute.data.source_tars import open_tars
from swift_hapi.samples.shard import KINDS

#: extensions of tables
TABLES = (".csv", ".jsonl", ".ndjson")
#: of images that are not decoded; other files are no images, and left out without an error
_TO_CONVERT = {
    "avif", "bmp", "gif", "heic", "heif", "jfif", "jp2", "tif", "tiff", "webp",
}  # fmt: skip


def open_source(
    path: Path, table: RawTable | None = None, *, unlabelled: bool = False
) -> Source:
    """Look through ``path``: a directory of class folders, a directory of tars, one tar, or a CSV
    or JSONL table of files (``key`` or ``path``, from the table's folder) and labels.

    :param table: labels of the files of a directory, by their paths from there
    :param unlabelled: take the images of a directory, or of tars, without labels and classes
    :raises DatasetError: none of these, or it holds no sample
    """
    is_table = path.is_file() and path.suffix.lower() in TABLES
    if unlabelled and (table is not None or is_table):
        raise ValueError("unlabelled: a table has labels; leave one of them out")
    if table is not None and path.is_dir():
        source = _listed(path, table)
    elif table is not None:
        raise DatasetError(f"{path}: is no directory, whose files a table could label")
    elif is_table:
        source = _listed(path.parent, parse_table(path.read_bytes(), str(path)))
    elif path.is_file():
        source = open_tars([path], not unlabelled)
    elif path.is_dir():
        tars = sorted(path.glob("*.tar"), key=lambda tar: os.fsencode(tar.name))
        if tars:
            source = open_tars(tars, not unlabelled)
        else:
            source = _flat(path) if unlabelled else _folders(path)
    else:
        raise DatasetError(f"{path}: is neither a directory nor a tar file")
    if not source.samples and not source.unusable:
        raise DatasetError(f"{path}: holds no sample ({', '.join(KINDS)})")
    return source


class _Found:
    """Collects the files of folders."""

    def __init__(self, root: Path):
        self.root = root
        self.keys = Keys()
        self.samples: list[SourceSample] = []
        self.unusable: list[str] = []
        self.ignored: list[str] = []
        self.links: list[Path] = []

    def folder(self, folder: Path, label: int | None) -> list[SourceSample]:
        """Everything below ``folder``; what is of use, once more."""
        before = len(self.samples)
        for path in _files(folder, self.unusable, self.links):
            relative = str(path.relative_to(self.root))
            extension = _extension(path)
            if extension in KINDS:
                try:
                    key = self.keys.unique(relative[: -len(path.suffix)])
                    self.samples.append(of_file(key, label, path, relative))
                except BadSource as error:
                    self.unusable.append(error.detail)
            elif extension in _TO_CONVERT:
                self.unusable.append(
                    f"{path}: .{extension} is not supported; convert it to JPEG or PNG"
                )
            else:
                self.ignored.append(readable(relative))
        return self.samples[before:]

    def source(self, classes: tuple[str, ...], notes: list[str]) -> Source:
        if self.links:
            # They may lead in a circle, or to what is taken already.
            notes = [*notes, f"{len(self.links)} links to folders not followed: {self.links[0]}"]
        return Source(
            tuple(self.samples), classes, tuple(self.unusable), ignored=tuple(self.ignored),
            notes=tuple(notes),
        )  # fmt: skip


def _extension(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")


def _files(folder: Path, unusable: list[str], links: list[Path]) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        unusable.append(f"{error.filename}: {error.strerror}")

    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted((f for f in folders if not f.startswith(".")), key=os.fsencode)
        links += [path for path in (Path(root, f) for f in folders) if path.is_symlink()]
        for name in sorted(names, key=os.fsencode):
            if not name.startswith("."):
                yield Path(root, name)


def _flat(root: Path) -> Source:
    found = _Found(root)
    found.folder(root, None)
    return found.source((), [])


def _folders(root: Path) -> Source:
    folders = sorted(
        (each for each in root.iterdir() if each.is_dir() and not each.name.startswith(".")),
        key=lambda folder: os.fsencode(folder.name),
    )
    loose = sum(_extension(path) in KINDS for path in root.iterdir() if path.is_file())
    if not folders:
        hint = (
            "; it holds images: put them into one folder for each class, label them by a table "
            "(--labels), or pack them without labels (--unlabelled)"
        )
        why = "holds neither tars nor a folder for each class"
        raise DatasetError(f"{root}: {why}{hint if loose else ''}")
    for folder in folders:
        if readable(folder.name) != folder.name:
            raise DatasetError(f"{root}: folder {readable(folder.name)!r}: its name is not UTF-8")
    found, notes = _Found(root), []
    for label, folder in enumerate(folders):
        samples = found.folder(folder, label)
        inner = {Path(sample.name).parts[1] for sample in samples}
        if samples and all(len(Path(sample.name).parts) > 2 for sample in samples):
            names = ", ".join(repr(name) for name in sorted(inner)[:3])
            more = ", ..." if len(inner) > 3 else ""
            notes.append(
                f"all images of class {folder.name!r} lie in folders below it ({names}{more}); if "
                f"those are the classes, put {folder} by itself"
            )
    if loose:
        notes.append(f"{loose} images lie in {root} itself, in the folder of no class: left out")
    return found.source(tuple(folder.name for folder in folders), notes)


def _listed(root: Path, table: RawTable) -> Source:
    """The files that a table names, in its order."""
    numbers, classes = table.numbered()
    keys, samples, unusable = Keys(), [], []
    for name, label in numbers.numbers.items():
        path = Path(root, name)
        if _extension(path) not in KINDS:
            unusable.append(f"{path}: is no {', '.join(KINDS)}")
        elif not path.is_file():
            unusable.append(f"{path}: there is no such file")
        else:
            key = keys.unique(name[: -len(path.suffix)])
            samples.append(of_file(key, label, path, name))
    return Source(tuple(samples), classes, tuple(unusable))
