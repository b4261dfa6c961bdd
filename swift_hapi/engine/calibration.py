"""Memory models of extractors: measured once per node, in a process of its own, and remembered.

Until a model has been measured its memory is guessed from above. Measuring takes a process, some
seconds of CPU and the memory of the largest batch, so it waits for a quiet moment. What it finds
lies in ``cache_dir`` as ``<sha256>.memory.json`` and holds for the versions and threads that it
was measured with.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

from swift_hapi.engine.loaded import LoadedModel
from swift_hapi.engine.model_memory import Booking
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
_TIMEOUT = 600.0
#: bytes of a process with torch; what loading takes of the file's size
_PROCESS, _LOADING = 300 * MB, 2
_BOOKED_AS = "measuring"
#: batches of the two runs, smaller ones where there is not the memory
_LADDER = (CALIBRATED_AT, (2, 8), (1, 4))


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
        self._waiting: deque[LoadedModel] = deque()
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
        self._waiting.append(model)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _work(self) -> None:
        while self._waiting:
            await self._quiet()
            model = self._waiting.popleft()
            path = self._file_of(model.digest)
            if path is None:
                continue
            try:
                found = await self._measure(path, model.extractor)
            except (CalibrationFailed, OSError) as error:
                LOG.warning("memory of model %s is not measured: %s", model.digest, error)
                continue
            await asyncio.to_thread(self._write, model.digest, found)
            self.measured += 1
            model.memory = found
            LOG.info("memory of model %s: %s", model.digest, found)

    async def _quiet(self) -> None:
        loop = asyncio.get_running_loop()
        until, since = loop.time() + PATIENCE, loop.time()
        while loop.time() < min(until, since + self._quiet_for):
            if self._busy():
                since = loop.time()
            await asyncio.sleep(min(_LOOK, self._quiet_for))

    async def _measure(self, path: Path, extractor: Extractor) -> MemoryModel:
        """
        :raises CalibrationFailed: the process fails, takes too long, or would take too much
        """
        alive = await asyncio.to_thread(per_sample_bytes, extractor, extractor.cuts[-1])
        batches, needs = self._batches(path.stat().st_size, alive)
        if not self._booking.hold_weights(_BOOKED_AS, needs):
            raise CalibrationFailed(f"there are no {needs} bytes to spare")
        try:
            out = await self._run(measure_command(path, batches, self._threads, nice=_NICE))
        finally:
            self._booking.settle_weights(_BOOKED_AS, 0)
        return fit(alive, read_measurement(out))

    async def _run(self, command: list[str]) -> bytes:
        """What it prints.

        :raises CalibrationFailed: it fails or takes too long
        """
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT)
        except asyncio.TimeoutError:
            raise CalibrationFailed(f"it takes longer than {_TIMEOUT:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise CalibrationFailed(f"exit status {process.returncode}")
        return out

    def _batches(self, weights: int, alive: int) -> tuple[tuple[int, ...], int]:
        """Batches to measure at, and bytes for that; ``alive`` bytes for each sample."""
        for batches in _LADDER:
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
