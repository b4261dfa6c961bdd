"""Tars in WebDataset layout as what ``hapi put`` reads."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.keys import Keys, readable
from hapi_compute.data.source import FileContent, Source, SourceSample
from swift_hapi.samples.shard import KINDS


def open_tars(paths: list[Path], labelled: bool = True) -> Source:
    """The samples of some tars, in their order.

    :param labelled: each must have a label; else none is looked for
    :raises DatasetError: one is no tar
    """
    keys, samples, unusable, top = Keys(), [], [], -1
    for path in paths:
        for name, label, extension, member in _members(path, unusable, labelled):
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
            top = max(top, -1 if label is None else label)
    return Source(tuple(samples), tuple(str(n) for n in range(top + 1)), tuple(unusable))


def _members(path: Path, unusable: list[str], labelled: bool):
    """(key, label, extension, member) of each sample, in the tar's order."""
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
                label = _label(archive, parts) if labelled else None
                if labelled and label is None:
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
