"""Where an embedded cluster keeps its files.

``dir`` holds etc/, logs/, run/ (sockets, pid files), engine/ (models, cache) and state.json.
Each of these directories and ``dir`` itself hold an empty file ``.hapi-cluster``: what has none is
somebody else's and is left alone.
Device data lies apart: Swift keeps an object's metadata in extended attributes, of which ext4
holds about 4 KB per file and tmpfs 64 KB.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from swift_hapi.cluster.errors import ClusterError, NotOurs

#: sun_path holds 108 bytes with its final zero; some room for names beside ours.
SOCKET_PATH_MAX = 100
SHM = Path("/dev/shm")
#: bytes that must be free on /dev/shm for device data to go there
SHM_ROOM = 1 << 30
_DATA_PREFIX = "swift-hapi-"
#: says that a directory was made here
MARKER = ".hapi-cluster"


@dataclass(frozen=True)
class Layout:
    """Paths of one cluster; ``data`` and ``run`` are private directories made for one run."""

    dir: Path
    data: Path
    run: Path

    @property
    def etc(self) -> Path:
        return self.dir / "etc"

    @property
    def logs(self) -> Path:
        return self.dir / "logs"

    @property
    def engine(self) -> Path:
        return self.dir / "engine"

    @property
    def devices(self) -> Path:
        return self.data / "devices"

    @property
    def engine_socket(self) -> Path:
        return self.run / "engine.sock"

    def log(self, server: str) -> Path:
        return self.logs / f"{server}.log"

    def pid_file(self, server: str) -> Path:
        return self.run / f"{server}.pid"

    @property
    def transient(self) -> tuple[Path, ...]:
        """What a stop removes, symbolic links before what they lead to."""
        return (self.dir / "run", self.run, self.engine, self.data)


def state_file(directory: Path) -> Path:
    return directory / "state.json"


def adopt(directory: Path) -> None:
    """Make a cluster's directory, or take one that is empty or was a cluster's before.

    :raises NotOurs: something else lies in it
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotOurs(f"{directory}: is no directory") from None
    if not is_ours(directory):
        _mark(directory)


def is_ours(directory: Path) -> bool:
    """Whether a cluster was started in ``directory`` before, even if it was killed."""
    return (directory / MARKER).is_file()


def lock(directory: Path) -> int | None:
    """Lock a cluster's directory; the lock lives as long as any copy of the descriptor.

    :returns: a descriptor to hand on to the supervisor, or None when a cluster has it
    """
    return _lock_file(directory / ".lock", os.O_CREAT)


def claim(data: Path) -> int:
    """Lock device data as in use, so that :func:`sweep` spares it.

    :returns: a descriptor to hand on to the supervisor
    """
    # Locked before it has its name: whoever finds it by that name finds it locked.
    fd = _lock_file(data / "new", os.O_CREAT)
    os.rename(data / "new", data / "lock")
    return fd


def sweep(parent: Path) -> None:
    """Remove device data that nobody has claimed any more.

    A supervisor that is killed leaves its data behind; in a directory that nobody starts a
    cluster in again it would fill the memory for good.
    """
    for data in parent.glob(f"{_DATA_PREFIX}*"):
        try:
            fd = _lock_file(data / "lock")
        except OSError:  # not claimed yet, or another user's
            continue
        if fd is not None:
            remove((data,))
            os.close(fd)


def _lock_file(path: Path, flags: int = 0) -> int | None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def prepare(directory: Path, data_dir: Path | None, devices: list[str]) -> Layout:
    """Make all directories, private to the user.

    :raises ClusterError: no place for device data supports extended attributes
    :raises NotOurs: something that is not a cluster's is in the way
    """
    run = directory / "run"
    _remove_own(run)
    if len(os.fsencode(run / "engine.sock")) <= SOCKET_PATH_MAX:
        run.mkdir(mode=0o700)
        _mark(run)
    else:
        target = Path(tempfile.mkdtemp(prefix="hapi-run-"))
        run.symlink_to(target)
        run = target
    layout = Layout(directory, _data_directory(directory, data_dir), run)
    try:
        for path in (layout.etc, layout.engine):
            _remove_own(path)
        for path in (layout.etc, layout.logs, layout.engine):
            adopt(path)
    except NotOurs:
        remove((run, directory / "run", layout.data))
        raise
    for path in (layout.engine / "models", layout.engine / "cache"):
        path.mkdir(mode=0o700)
    for old_log in layout.logs.glob("*.log"):
        old_log.unlink()
    for device in devices:
        (layout.devices / device).mkdir(parents=True)
    return layout


def _mark(directory: Path) -> None:
    # .lock: of a start that came no further, by versions that did not mark.
    if any(path.name != ".lock" for path in directory.iterdir()):
        raise NotOurs(
            f"{directory}: is not empty and was not made by a cluster; nothing in it is touched: "
            "give a new or an empty directory"
        )
    (directory / MARKER).touch(mode=0o600)


def _remove_own(path: Path) -> None:
    """Remove what an earlier run made.

    :raises NotOurs: somebody else made it
    """
    if path.is_symlink():
        # To where run/ went when the path was too long; that directory was its run's alone.
        path.unlink()
    elif path.exists():
        adopt(path)
        remove((path,))


def remove(paths) -> None:
    """Remove files, links and trees; what is not there is fine."""
    for path in map(Path, paths):
        if path.is_symlink() or path.is_file():
            path.unlink(missing_ok=True)
        elif path.exists():
            shutil.rmtree(path, ignore_errors=True)


def _data_directory(directory: Path, wanted: Path | None) -> Path:
    if wanted is not None:
        parents = [wanted]
        wanted.mkdir(parents=True, exist_ok=True)
    else:
        parents = [SHM, directory] if _has_room(SHM) else [directory]
    for parent in parents:
        data = Path(tempfile.mkdtemp(prefix=_DATA_PREFIX, dir=parent))
        if _xattrs_work(data):
            return data
        data.rmdir()
    raise ClusterError(
        "no extended attributes on " + ", ".join(map(str, parents)) + ": Swift needs them for "
        "device data; give a data directory on ext4, xfs or a tmpfs of Linux 6.6 or later"
    )


def _has_room(path: Path) -> bool:
    return (
        path.is_dir()
        and os.access(path, os.W_OK)
        and shutil.disk_usage(path).free >= SHM_ROOM
    )


def _xattrs_work(directory: Path) -> bool:
    with tempfile.TemporaryFile(dir=directory) as file:
        try:
            os.setxattr(file.fileno(), "user.swift.metadata", bytes(1024))
        except OSError as error:
            if error.errno in (errno.ENOTSUP, errno.ENOSPC, errno.EPERM, errno.E2BIG):
                return False
            raise
    return True
