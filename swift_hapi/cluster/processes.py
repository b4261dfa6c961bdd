"""Processes: who is who, starting one that dies with its parent, ending a group."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# Loaded here, not in the child: between fork and exec nothing should be imported.
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class ProcessId:
    """A process that cannot be taken for a later one with the same number.

    :param pid: its number
    :param start: clock ticks from boot to its start (field 22 of /proc/PID/stat)
    """

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """:raises ProcessLookupError: there is no such process"""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError) as error:
            raise ProcessLookupError(f"no process {pid}") from error
        # The name in parentheses may hold anything, parentheses and spaces included.
        return cls(pid, int(stat.rpartition(")")[2].split()[19]))

    def alive(self) -> bool:
        """Whether it runs; a zombie does not."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        fields = stat.rpartition(")")[2].split()
        return int(fields[19]) == self.start and fields[0] not in "ZX"

    def wait_gone(self, timeout: float) -> bool:
        """Wait until it does not run; False when it still does after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent, of that pid, dies."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was told
        os._exit(1)


def start_bound(argv: Sequence[str], log: Path, cwd: Path) -> subprocess.Popen:
    """Start ``argv`` in a process group of its own; the kernel kills it if the caller dies.

    Only for a caller with one thread: the kernel looks at the thread that forked.
    """
    parent = os.getpid()
    with open(log, "ab") as out:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=lambda: die_with(parent),  # noqa: PLW1509 - one thread, see above
        )


def signal_group(pgid: int, signum: int) -> bool:
    """Signal a process group of ours; False when nobody is left in it."""
    try:
        os.killpg(pgid, signum)
    except ProcessLookupError:
        return False
    return True
