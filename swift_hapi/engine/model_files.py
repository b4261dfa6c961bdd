"""Extractor files on the node's disk: the operator's directory and the cache of uploads.

The operator's ``<name>.safetensors`` are read at start and on SIGHUP; their names are aliases of
digests and they are open to all accounts. Uploads lie in ``cache_dir`` as
``<sha256>-<md5>.safetensors``: both digests survive a restart in the name alone, and the file's
modification time is the time of its last use. Written to a temporary name, checked, renamed.

The lookups and the bookkeeping are for the event loop; what reads or writes much is marked
*blocking* and belongs in a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
import stat
import tempfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from swift_hapi.protocol.errors import TooLarge

LOG = logging.getLogger(__name__)
SUFFIX = ".safetensors"
OPERATOR, ACCOUNT = "operator", "account"
_UPLOAD_PREFIX = ".upload-"
_UPLOAD = re.compile(r"\.upload-(\d+)-.*")
_CACHED = re.compile(r"([0-9a-f]{64})-([0-9a-f]{32})\.safetensors")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HEX = re.compile(r"[0-9a-f]{64}")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class ModelFile:
    """One file: ``hex`` is the sha256 of its bytes, ``scope`` says who may use it."""

    hex: str
    md5: str
    size: int
    path: Path
    scope: str


class Digests:
    """sha256 and md5 of a stream, and its length."""

    def __init__(self):
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.size = 0

    def update(self, block: bytes) -> None:
        self._sha256.update(block)
        self._md5.update(block)
        self.size += len(block)

    @property
    def hex(self) -> str:
        return self._sha256.hexdigest()

    @property
    def md5(self) -> str:
        return self._md5.hexdigest()


class Upload:
    """A file being received; :meth:`write` and :meth:`finish` are blocking."""

    def __init__(self, directory: Path):
        prefix = f"{_UPLOAD_PREFIX}{os.getpid()}-"
        handle, name = tempfile.mkstemp(prefix=prefix, dir=directory)
        self.path = Path(name)
        self.digests = Digests()
        self._file = os.fdopen(handle, "wb")

    def write(self, blocks: list[bytes]) -> None:
        for block in blocks:
            self._file.write(block)
            self.digests.update(block)

    def finish(self) -> None:
        """To disk, before a name says that it is whole."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def discard(self) -> None:
        """Remove what has not been renamed; may be called at any time."""
        self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # what is in its buffer may find no room
            self._file.close()


def _abandoned(name: str) -> bool:
    """Whether the process that received this upload is no more."""
    found = _UPLOAD.fullmatch(name)
    if found is None:
        return name.startswith(_UPLOAD_PREFIX)
    try:
        os.kill(int(found.group(1)), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return int(found.group(1)) == os.getpid()


def digests_of(path: Path) -> Digests:
    """Blocking."""
    digests = Digests()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digests.update(block)
    return digests


class OperatorModels:
    """The operator's directory, as of the last :meth:`scan`."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._known: dict[tuple, ModelFile] = {}
        self.by_name: dict[str, ModelFile] = {}
        self.by_hex: dict[str, ModelFile] = {}
        self.names: dict[str, str] = {}  #: sha256:<hex> -> one of its names

    def scan(self) -> None:
        """Read names and digests anew; unchanged files are not read again. Blocking.

        Where the directory cannot be read, all stays as it was.
        """
        known, by_name = {}, {}
        try:
            candidates = self._candidates()
        except OSError as error:
            LOG.log(
                logging.ERROR if self.by_name else logging.WARNING,
                "model_dir cannot be read, %d operator models are kept: %s",
                len(self.by_name),
                error,
            )
            return
        for path in candidates:
            try:
                status = path.stat()
                key = (path, status.st_ino, status.st_size, status.st_mtime_ns)
                file = self._known.get(key)
                if file is None:
                    digests = digests_of(path)
                    file = ModelFile(digests.hex, digests.md5, digests.size, path, OPERATOR)
            except OSError as error:
                LOG.error("model %s is left out: %s", path, error)
                continue
            known[key] = by_name[path.name.removesuffix(SUFFIX)] = file
        # Whole new dicts: the event loop may look one up at any time.
        self.by_hex = {file.hex: file for file in by_name.values()}
        self.names = {f"sha256:{file.hex}": name for name, file in by_name.items()}
        self._known, self.by_name = known, by_name
        LOG.info("%d operator models in %s", len(by_name), self._directory)

    def _candidates(self) -> list[Path]:
        """:raises OSError: there is no such directory, or it cannot be read"""
        names = sorted(os.listdir(self._directory))
        good = []
        for path in (self._directory / name for name in names if name.endswith(SUFFIX)):
            name = path.name.removesuffix(SUFFIX)
            if not path.is_file() or not _NAME.fullmatch(name) or name.startswith("sha256"):
                LOG.warning("model %s is left out: its name cannot be asked for", path)
            else:
                good.append(path)
        return good


def _cached_file(path: Path) -> ModelFile:
    """:raises FileNotFoundError: it is gone, or no file"""
    hex_, md5 = _CACHED.fullmatch(path.name).groups()
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(path)
    return ModelFile(hex_, md5, status.st_size, path, ACCOUNT)


def _remove(path: Path) -> None:
    """What lies at a file's place, even if it is no file."""
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        shutil.rmtree(path, ignore_errors=True)


class CachedModels:
    """Uploaded files, least recently used first; never more than ``max_bytes`` in all."""

    def __init__(self, directory: Path, max_bytes: int):
        self._directory = directory
        self._max_bytes = max_bytes
        self._files: OrderedDict[str, ModelFile] = OrderedDict()

    @property
    def nbytes(self) -> int:
        return sum(file.size for file in self._files.values())

    def __len__(self) -> int:
        return len(self._files)

    def open(self) -> None:
        """Take over what an earlier run left; create the directory (0700). Blocking."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        found = []
        for path in self._directory.iterdir():
            if _CACHED.fullmatch(path.name):
                with contextlib.suppress(FileNotFoundError):  # another process has dropped it
                    found.append((path.stat().st_mtime_ns, _cached_file(path)))
            elif _abandoned(path.name):
                path.unlink(missing_ok=True)
        for _, file in sorted(found, key=lambda pair: pair[0]):
            self._files[file.hex] = file
        self._evict()

    def new_upload(self) -> Upload:
        return Upload(self._directory)

    def get(self, hex_: str) -> ModelFile | None:
        """The file, marked as used just now."""
        file = self._files.get(hex_) or self._found(hex_)
        if file is not None:
            self._files.move_to_end(hex_)
            # A file that is gone is noticed, and forgotten, when it is loaded.
            with contextlib.suppress(OSError):
                os.utime(file.path)
        return file

    def _found(self, hex_: str) -> ModelFile | None:
        """A file that another worker process has received."""
        for path in self._directory.glob(f"{hex_}-*{SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                if _CACHED.fullmatch(path.name):
                    file = self._files[hex_] = _cached_file(path)
                    return file
        return None

    def check_size(self, size: int) -> None:
        """:raises TooLarge: a file of ``size`` bytes could never be kept"""
        if size > self._max_bytes:
            raise TooLarge(f"{size} bytes of model are more than the cache holds")

    def add(self, upload: Upload) -> ModelFile:
        """Give a finished, checked upload its name; evicts others."""
        digests = upload.digests
        path = self._directory / f"{digests.hex}-{digests.md5}{SUFFIX}"
        if path.is_dir():
            _remove(path)
        os.replace(upload.path, path)
        file = ModelFile(digests.hex, digests.md5, digests.size, path, ACCOUNT)
        self._files[file.hex] = file
        self._files.move_to_end(file.hex)
        self._evict()
        return file

    def drop(self, hex_: str) -> None:
        file = self._files.pop(hex_, None)
        if file is not None:
            _remove(file.path)

    def _evict(self) -> None:
        while self.nbytes > self._max_bytes:
            hex_ = next(iter(self._files))
            LOG.info("model %s leaves the cache", hex_)
            self.drop(hex_)


class ModelFiles:
    """Both places behind one lookup."""

    def __init__(self, operator: OperatorModels, cached: CachedModels):
        self.operator = operator
        self.cached = cached

    def find(self, reference: str) -> ModelFile | None:
        """:param reference: 64 hex digits, with or without ``sha256:``, or an operator's name"""
        hex_ = reference.removeprefix("sha256:")
        if _HEX.fullmatch(hex_):
            return self.operator.by_hex.get(hex_) or self.cached.get(hex_)
        return self.operator.by_name.get(reference)
