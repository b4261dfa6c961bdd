"""Memory models of extractors: measured once per node, in a process of its own, and remembered.

Until a model has been measured its memory is guessed from above. Measuring takes a process, some
seconds of CPU and the memory of the largest batch, so it waits for a quiet moment, and is given up
when work comes, to be tried again. Accounts have their models measured in turn. What it finds lies
in ``cache_dir`` as ``<sha256>.memory.json`` and holds for the versions and threads that it
was measured with.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

from swift_hapi.engine.loaded import LoadedModel
from swift_hapi.engine.model_memory import Booking
from swift_hapi.engine.turns import ON_BEHALF_OF
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.memory import (
    CALIBRATED_AT,
    MB,
    UNMEASURED,
    CalibrationFailed,
    MemoryModel,
    fit,
    measure_command,
    per_sample_bytes,
    read_measurement,
)

LOG = logging.getLogger(__name__)
#: seconds without work before the engine counts as quiet; and how long to wait for that at most
QUIET, PATIENCE = 5.0, 600.0
_LOOK = 0.5
_NICE = 10
_TIMEOUT = 300.0
#: seconds of CPU that measuring may take, and should take at so many operations per second
_CPU, _SHOULD, _SPEED = 60, 30.0, 3e10
#: passes over a batch: one is not counted in the measurement
_RUNS = 2
#: times that work stops the measuring of a model, which then goes on beside it
_TRIES = 3
#: models that wait to be measured, of one account and of all
_WAITING, _ALL = 8, 64
#: bytes of a process with torch; what loading takes of the file's size
_PROCESS, _LOADING = 300 * MB, 2
_BOOKED_AS = "measuring"
#: batches of the two runs, smaller ones where there is not the memory
_LADDER = (CALIBRATED_AT, (2, 8), (1, 4))


class _Stopped(Exception):
    """There is work to do."""


class Calibrator:
    """
    :param directory: where results are kept
    :param setting: what results hold for, besides the model: versions
    :param threads: of one network operation
    :param memory: bytes that measuring may take, weights included
    :param booking: where they are booked while it does
    :param file_of: path of a model's file by its digest, None if it is gone
    :param busy: whether the engine has work
    :param quiet: seconds without work before the engine counts as quiet
    :param measures: False: only what another process of the engine has found is used
    """

    def __init__(
        self,
        directory: Path,
        setting: str,
        threads: int,
        memory: int,
        booking: Booking,
        file_of: Callable[[str], Path | None],
        busy: Callable[[], bool],
        measures: bool = True,
        quiet: float = QUIET,
    ):
        self._directory = directory
        self._setting = f"{setting} threads={threads}"
        self._threads = threads
        self._memory = memory
        self._booking = booking
        self._quiet_for = quiet
        self._file_of = file_of
        self._busy = busy
        self._measures = measures
        #: of each account, the next one's first: models, with the times that they were stopped
        self._waiting: dict[str, deque[tuple[LoadedModel, int]]] = {}
        self._task: asyncio.Task | None = None
        self.measured = 0

    def learnt(self, model: LoadedModel) -> None:
        """A model has become known: give it what is remembered of it, or measure it."""
        known = self._read(model.digest)
        if known is not None:
            model.memory = known
            return
        if not self._measures:
            return
        account = ON_BEHALF_OF.get()
        own = len(self._waiting.get(account, ()))
        if own >= _WAITING or sum(map(len, self._waiting.values())) >= _ALL:
            LOG.info("memory of model %s is not measured: many others wait for that", model.digest)
            return
        self._wait(account, model, 0)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    def _wait(self, account: str, model: LoadedModel, stopped: int) -> None:
        self._waiting.setdefault(account, deque()).append((model, stopped))

    def _next(self) -> tuple[str, LoadedModel, int]:
        account = next(iter(self._waiting))
        queue = self._waiting.pop(account)
        model, stopped = queue.popleft()
        if queue:
            self._waiting[account] = queue  # behind all others
        return account, model, stopped

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _work(self) -> None:
        while self._waiting:
            quiet = await self._quiet()
            account, model, stopped = self._next()
            path = self._file_of(model.digest)
            if path is None:
                continue
            try:
                found = await self._measure(
                    path, model.extractor, yields=quiet and stopped < _TRIES
                )
            except _Stopped:
                self._wait(account, model, stopped + 1)
                continue
            except (CalibrationFailed, OSError) as error:
                LOG.warning("memory of model %s is not measured: %s", model.digest, error)
                continue
            await asyncio.to_thread(self._write, model.digest, found)
            self.measured += 1
            model.memory = found
            LOG.info("memory of model %s: %s", model.digest, found)

    async def _quiet(self) -> bool:
        """Wait for a quiet moment; False when there was none for long."""
        loop = asyncio.get_running_loop()
        until, since = loop.time() + PATIENCE, loop.time()
        while loop.time() < min(until, since + self._quiet_for):
            if self._busy():
                since = loop.time()
            await asyncio.sleep(min(_LOOK, self._quiet_for))
        return loop.time() >= since + self._quiet_for

    async def _measure(self, path: Path, extractor: Extractor, yields: bool) -> MemoryModel:
        """
        :param yields: whether it is given up when work comes
        :raises _Stopped: it was
        :raises CalibrationFailed: the process fails, takes too long, or would take too much
        """
        alive = await asyncio.to_thread(per_sample_bytes, extractor, extractor.cuts[-1])
        batches, needs = self._batches(path.stat().st_size, alive, extractor.flops)
        if not self._booking.hold_weights(_BOOKED_AS, needs):
            raise CalibrationFailed(f"there are no {needs} bytes to spare")
        try:
            command = measure_command(path, batches, self._threads, nice=_NICE)
            out = await self._run(command, yields)
        finally:
            self._booking.settle_weights(_BOOKED_AS, 0)
        return fit(alive, read_measurement(out))

    async def _run(self, command: list[str], yields: bool) -> bytes:
        """What it prints.

        :raises _Stopped: work has come
        :raises CalibrationFailed: it fails or takes too long
        """
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        with contextlib.suppress(ProcessLookupError):
            # It holds even if this process is killed.
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (_CPU, _CPU))
        talk = asyncio.ensure_future(process.communicate())
        try:
            await self._done_or_stopped(talk, yields)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            out, _ = await talk
        if process.returncode in (-signal.SIGKILL, -signal.SIGXCPU):
            raise CalibrationFailed(f"it takes more than {_CPU} s of CPU, or is killed")
        if process.returncode:
            raise CalibrationFailed(f"exit status {process.returncode}")
        return out

    async def _done_or_stopped(self, talk: asyncio.Future, yields: bool) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _TIMEOUT
        while not talk.done():
            if yields and self._busy():
                raise _Stopped
            if loop.time() >= until:
                raise CalibrationFailed(f"it takes longer than {_TIMEOUT:.0f} s")
            await asyncio.wait({talk}, timeout=_LOOK)

    def _batches(
        self, weights: int, alive: int, flops: float
    ) -> tuple[tuple[int, ...], int]:
        """Batches to measure at, and bytes for that; each sample takes ``alive`` bytes and
        ``flops`` operations."""
        for batches in _LADDER:
            if _RUNS * sum(batches) * flops > _SHOULD * _SPEED and batches != _LADDER[-1]:
                continue
            run = UNMEASURED.once + UNMEASURED.times * max(batches) * alive
            needs = int(_PROCESS + _LOADING * weights + run)
            if needs <= self._memory:
                return batches, needs
        raise CalibrationFailed(f"measuring takes more than {self._memory} bytes")

    def _path(self, digest: str) -> Path:
        return self._directory / f"{digest.removeprefix('sha256:')}.memory.json"

    def _read(self, digest: str) -> MemoryModel | None:
        try:
            document = json.loads(self._path(digest).read_text())
            if document["setting"] != self._setting:
                return None
            return MemoryModel(float(document["once"]), float(document["times"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, digest: str, model: MemoryModel) -> None:
        document = {"setting": self._setting, "once": model.once, "times": model.times}
        try:
            handle, temporary = tempfile.mkstemp(dir=self._directory, prefix=".memory-")
            with os.fdopen(handle, "w") as file:
                json.dump(document, file)
            os.replace(temporary, self._path(digest))
        except OSError as error:
            LOG.warning("memory model of %s is not kept: %s", digest, error)
