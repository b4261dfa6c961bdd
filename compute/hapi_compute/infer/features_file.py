"""A file of features that grows shard by shard and can be gone on with after a kill.

While it grows there are two files beside the final one: ``OUT.partial``, the bytes of the final
file as far as they are known, and ``OUT.journal``, one JSON line for the run and one for each
shard that lies in the partial file whole, with a checksum. What a killed run has left behind its
last good line is cut off and computed again. The end is a rename, so that the final file is there
whole or not at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from hapi_compute.data.errors import DatasetError
from hapi_compute.train.files import check_writable, regular, write_whole

FORMAT, VERSION = "hapi-features", 1
_ALIGN = 64
_PIECE = 1 << 24


class FeaturesFile:
    """Rows of one shape with keys and labels.

    Use as a context manager: leaving it keeps what is needed to go on.

    :param about: what the features are of; equal for equal runs
    :param shape: of one row
    :param restart: begin anew, whatever is there
    :raises DatasetError: ``path`` holds the beginning of another run
    """

    def __init__(self, path: Path, about: dict, shape: Sequence[int], *, restart: bool = False):
        self.path = path
        self._about = json.loads(json.dumps(about))
        self._shape = tuple(shape)
        self._row_bytes = 4 * int(np.prod(shape, dtype=np.int64))
        self._tensors = path.suffix == ".safetensors"
        self._room = self._header_room()
        self._real = Path(os.path.realpath(path))
        self._partial, self._journal = _beside(path)
        self.shards: list[str] = []  #: names of the shards that are done, in order
        self.keys: list[str] = []
        self.labels: list[int] = []
        self._real.parent.mkdir(parents=True, exist_ok=True)
        self._lines = _open(self._journal)
        try:
            # Ends with the process, however that ends.
            fcntl.flock(self._lines, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lines.close()
            raise DatasetError(f"{self._journal}: another process is writing it") from None
        self._data = _open(self._partial)
        try:
            good = 0 if restart else self._recover()
        except BaseException:
            self.__exit__()
            raise
        self._lines.truncate(good)
        self._lines.seek(good)
        if not good:
            self._lines.write(_line({"format": FORMAT, "version": VERSION, "about": about}))
        self._end = self._room + len(self.keys) * self._row_bytes
        self._data.truncate(self._end)
        self._data.seek(self._end)

    def __enter__(self) -> FeaturesFile:
        return self

    def __exit__(self, *_exc) -> None:
        self._lines.close()
        self._data.close()

    def append(
        self, shard: str, rows: np.ndarray, keys: Sequence[str], labels: Sequence[int]
    ) -> None:
        """Add a shard: first its rows, then the line that says that they are there.

        :param rows: float32 [n, *shape]
        """
        content = np.ascontiguousarray(rows, dtype="<f4").reshape(-1).view(np.uint8)
        _write_all(self._data, memoryview(content))
        line = {
            "shard": shard,
            "keys": list(keys),
            "labels": [int(label) for label in labels],
            "crc32": zlib.crc32(content),
        }
        _write_all(self._lines, memoryview(_line(line)))
        self._take(line)

    def finish(self, name_of: Callable[[str], str | None] = lambda key: None) -> None:
        """Write what comes around the rows, and give the file its name.

        :param name_of: name of a sample's file by its key
        """
        self._names = [name_of(key) for key in self.keys]
        if self._tensors:
            header, rest = self._safetensors()
        else:
            header, rest = self._npy(), b""
            write_whole(self.path.with_suffix(".json"), self._description())
        _write_all(self._data, memoryview(rest))
        self._data.seek(0)
        _write_all(self._data, memoryview(header))
        os.fsync(self._data.fileno())
        os.replace(self._partial, self._real)
        self._journal.unlink()

    def _take(self, line: dict) -> None:
        self.shards.append(line["shard"])
        self.keys += line["keys"]
        self.labels += line["labels"]

    def _recover(self) -> int:
        """Read the journal as far as it agrees with the data; bytes of it that are good."""
        lines = self._journal.read_bytes().split(b"\n")[:-1]  # The last may be cut off.
        self._data.seek(self._room)
        good = 0
        for number, text in enumerate(lines):
            line = _parse(text)
            if number == 0:
                if line is None or line.get("about") != self._about:
                    raise DatasetError(
                        f"{self._journal}: is of another run (other data, model or options); "
                        "give --restart, or another --out"
                    )
            elif line is None or not self._agrees(line):
                break
            else:
                self._take(line)
            good += len(text) + 1
        return good

    def _agrees(self, line: dict) -> bool:
        left, crc = len(line["keys"]) * self._row_bytes, 0
        while left:
            piece = self._data.read(min(left, _PIECE))
            if not piece:
                return False
            crc = zlib.crc32(piece, crc)
            left -= len(piece)
        return crc == line["crc32"]

    def _header_room(self) -> int:
        if not self._tensors:
            return 192 + -(-12 * len(self._shape) // _ALIGN) * _ALIGN
        # Numbers of at most 16 digits: the header never outgrows what is kept for it.
        longest = self._safetensors_header(10**15, 10**15, 10**15)
        return -(-(8 + len(longest)) // 4096) * 4096

    def _npy(self) -> bytes:
        """Version 1.0 of numpy's format (numpy.lib.format), padded to the room there is."""
        shape = (len(self.keys), *self._shape)
        text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape!r}, }}"
        header = b"\x93NUMPY\x01\x00" + (self._room - 10).to_bytes(2, "little")
        return header + text.encode().ljust(self._room - 11) + b"\n"

    def _safetensors_header(self, rows: int, key_bytes: int, name_bytes: int) -> bytes:
        document = {"__metadata__": {"hapi": _line(self._about).decode().strip()}}
        end = 0
        for name, dtype, shape, item in (
            ("features", "F32", (rows, *self._shape), 4),
            ("label", "I64", (rows,), 8),
            ("key_ends", "I64", (rows,), 8),
            ("name_ends", "I64", (rows,), 8),
            ("keys", "U8", (key_bytes,), 1),
            ("names", "U8", (name_bytes,), 1),
        ):
            start, end = end, end + item * int(np.prod([int(n) for n in shape], dtype=object))
            document[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
        return _line(document).strip()

    def _safetensors(self) -> tuple[bytes, bytes]:
        key_ends, keys = _joined(self.keys)
        name_ends, names = _joined([name or "" for name in self._names])
        header = self._safetensors_header(len(self.keys), len(keys), len(names))
        padded = (self._room - 8).to_bytes(8, "little") + header.ljust(self._room - 8)
        labels = np.array(self.labels, dtype="<i8")
        return padded, labels.tobytes() + key_ends + name_ends + keys + names

    def _description(self) -> bytes:
        document = {
            "format": FORMAT,
            "version": VERSION,
            "file": self.path.name,
            "shape": [len(self.keys), *self._shape],
            **self._about,
            "keys": self.keys,
            "names": self._names,
            "labels": self.labels,
        }
        return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode(
            "utf-8", "surrogatepass"
        )


def finished(path: Path, about: dict) -> int | None:
    """Samples in ``path`` if it is whole and of this very run; None if it is not."""
    # The renaming makes an end of the partial file: where both are left, it has not come to that,
    # and ``path`` is of an earlier run.
    if _beside(path)[0].exists():
        return None
    try:
        if path.suffix == ".safetensors":
            with open(path, "rb") as stream:
                header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
            found = json.loads(header["__metadata__"]["hapi"])
            count = header["label"]["shape"][0]
        else:
            found = json.loads(path.with_suffix(".json").read_bytes())
            count = found["shape"][0]
            if found["file"] != path.name or not path.exists():
                return None
    except (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError, MemoryError):
        return None
    same = all(found.get(name, ...) == value for name, value in about.items())
    return count if same else None


def _joined(texts: list[str]) -> tuple[bytes, bytes]:
    """Where each ends, as int64, and all of them, in UTF-8."""
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    return np.cumsum([len(part) for part in parts], dtype="<i8").tobytes(), b"".join(parts)


def check_free(out: str) -> None:
    """:raises ValueError: features cannot be written there, or another process is about it"""
    check_writable(out, "out")
    if regular(out) is None:
        raise ValueError(f"out={out!r}: is no regular file")
    journal = _beside(Path(out))[1]
    with contextlib.suppress(FileNotFoundError), open(journal, "rb") as stream:
        try:
            # Shared: two that only look do not meet.
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"out={out!r}: another process is writing it") from None


def _beside(path: Path) -> tuple[Path, Path]:
    """The partial file and the journal: beside what a link leads to, so that renaming works."""
    real = Path(os.path.realpath(path))
    return real.with_name(real.name + ".partial"), real.with_name(real.name + ".journal")


def read_keys(tensors: dict[str, np.ndarray], what: str = "key") -> list[str]:
    """The keys in a ``.safetensors`` file of features, as loaded with numpy.

    :param what: ``key``; ``name`` for names of files, "" where one is not known
    """
    text, ends = tensors[f"{what}s"].tobytes(), tensors[f"{what}_ends"].tolist()
    starts = [0, *ends[:-1]]
    return [
        text[start:end].decode("utf-8", "surrogatepass")
        for start, end in zip(starts, ends, strict=True)
    ]


def _line(document: dict) -> bytes:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return text.encode() + b"\n"


def _parse(text: bytes) -> dict | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _open(path: Path):
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)


def _write_all(stream, content: memoryview) -> None:
    while len(content):
        content = content[stream.write(content) :]
