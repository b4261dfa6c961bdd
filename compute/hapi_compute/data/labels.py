"""Where labels come from when not from the shards themselves: a table, or the path.

A table is a CSV file (columns ``key`` and ``label``, or two columns without a header) or a JSONL
file (``{"key": ..., "label": ...}`` on each line), in the store or on local disk; ``path`` and
``file`` are other names of ``key``. A label is the
name of a class or its number. A key is what ``hapi extract`` calls one: the name of a tar member
without its extension, or of a single-sample object (whole, or below the dataset's prefix).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hapi_compute.data.errors import DatasetError, LabelMissing
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.names import SwiftUrl

#: ``--labels`` for the folder that a key lies in
PATH = "path"
_LARGEST = 999_999_999
_KEY_NAMES = ("key", "path", "file")


def folder_of(path: str) -> str:
    """Name of the folder that ``path`` lies in, empty parts ("a//b.jpg") left aside."""
    return next((part for part in reversed(path.split("/")[:-1]) if part), "")


@dataclass(frozen=True)
class LabelTable:
    """``numbers``: key to class number; ``root`` is what single-sample keys may leave out."""

    where: str
    numbers: Mapping[str, int]
    root: str = ""

    @property
    def digest(self) -> str:
        """sha256 over keys and numbers."""
        return _digest(self.numbers, "table")

    def of(self, keys: Sequence[str], where: str) -> np.ndarray:
        """int64 [keys].

        :param where: the object that the keys are from
        :raises LabelMissing: naming the first key that the table lacks
        """
        return np.array([self._number(key, where) for key in keys], dtype=np.int64)

    def _number(self, key: str, where: str) -> int:
        number = self.numbers.get(key)
        if number is None and self.root and key.startswith(self.root):
            number = self.numbers.get(key[len(self.root) :])
        if number is None:
            raise LabelMissing(f"{where}: sample {key!r} is not in {self.where}", key=key)
        return number


@dataclass(frozen=True)
class PathLabels:
    """The class of a sample is the folder that its key lies in."""

    numbers: Mapping[str, int]

    @property
    def digest(self) -> str:
        """sha256 over folders and numbers."""
        return _digest(self.numbers, "path")

    def of(self, keys: Sequence[str], where: str) -> np.ndarray:
        """int64 [keys].

        :raises LabelMissing: naming the first key whose folder is no class
        """
        found = []
        for key in keys:
            folder = folder_of(key)
            if folder not in self.numbers:
                why = f"lies in folder {folder!r}, which is no class" if folder else "has none"
                raise LabelMissing(f"{where}: sample {key!r} {why}", key=key)
            found.append(self.numbers[folder])
        return np.array(found, dtype=np.int64)


def _digest(numbers: Mapping[str, int], kind: str) -> str:
    text = json.dumps([kind, sorted(numbers.items())])
    return hashlib.sha256(text.encode()).hexdigest()


Labels = LabelTable | PathLabels


@dataclass(frozen=True)
class RawTable:
    """A table as read, its labels not yet numbered."""

    where: str
    labels: Mapping[str, str | int]

    def numbered(
        self, classes: Sequence[str] = (), root: str = ""
    ) -> tuple[LabelTable, tuple[str, ...]]:
        """With labels as numbers, and the names of the classes.

        :param classes: names to number by; without them, names are sorted, and numbers stand for
            themselves
        :param root: see :class:`LabelTable`
        :raises DatasetError: a label is not among ``classes``
        """
        names = tuple(classes)
        whole = all(_as_number(label) is not None for label in self.labels.values())
        by_name = {name: number for number, name in enumerate(names)}
        # Classes may be called "7" and "1": as long as every label is a name, names it is.
        if whole and not (names and all(str(v) in by_name for v in self.labels.values())):
            numbers = {key: _as_number(label) for key, label in self.labels.items()}
            if not names:
                names = tuple(str(n) for n in range(max(numbers.values(), default=-1) + 1))
        else:
            if not names:
                names = tuple(sorted({str(label) for label in self.labels.values()}))
                by_name = {name: number for number, name in enumerate(names)}
            numbers = {key: by_name.get(str(label)) for key, label in self.labels.items()}
        for key, number in numbers.items():
            if number is None or number >= len(names):
                raise DatasetError(
                    f"{self.where}: label {self.labels[key]!r} of {key!r} is none of the "
                    f"{len(names)} classes"
                )
        return LabelTable(self.where, numbers, root), names


def _as_number(label: str | int) -> int | None:
    if isinstance(label, int):
        return label if 0 <= label <= _LARGEST else None
    text = label.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def read_table(client: SwiftClient, place: str) -> RawTable:
    """Read a table.

    :param place: ``swift://container/object``, or a local path
    :raises DatasetError: no table, or a key that has two labels; names place and line
    """
    if place.startswith("swift://"):
        url = SwiftUrl.parse(place)
        body = client.get(url.container, url.prefix).body
    else:
        body = Path(place).read_bytes()
    return parse_table(body, place)


def parse_table(body: bytes, place: str) -> RawTable:
    """See :func:`read_table`."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{place}: is not UTF-8 at byte {error.start}") from None
    rows = _jsonl(text, place) if text.lstrip().startswith("{") else _csv(text, place)
    labels: dict[str, str | int] = {}
    for line, key, label in rows:
        if labels.setdefault(key, label) != label:
            raise DatasetError(f"{place}:{line}: {key!r} has two labels, {labels[key]!r} too")
    if not labels:
        raise DatasetError(f"{place}: holds no labels")
    return RawTable(place, labels)


def _jsonl(text: str, place: str):
    # Not splitlines(): a key may hold U+2028 and its like.
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip():
            continue
        try:
            entry = json.loads(row)
            key = next(entry[name] for name in _KEY_NAMES if name in entry)
            label = entry["label"]
        except (ValueError, LookupError, TypeError, RecursionError, StopIteration):
            key = label = None
        if not isinstance(key, str) or isinstance(label, bool) or not isinstance(label, int | str):
            raise DatasetError(f'{place}:{line}: want {{"key": ..., "label": ...}}')
        yield line, key, label


def _csv(text: str, place: str):
    reader = csv.reader(io.StringIO(text, newline=""))
    columns = (0, 1)
    try:
        for number, row in enumerate(row for row in reader if row):
            names = [cell.strip() for cell in row] if number == 0 else []
            key = next((name for name in _KEY_NAMES if name in names), None)
            if key is not None and "label" in names:
                columns = names.index(key), names.index("label")
                continue
            if len(row) <= max(columns) or (len(row) != 2 and columns == (0, 1) and not number):
                raise DatasetError(f"{place}:{reader.line_num}: want columns key,label")
            yield reader.line_num, row[columns[0]], row[columns[1]].strip()
    except csv.Error as error:
        raise DatasetError(f"{place}:{reader.line_num}: {error}") from None
