"""The engine's options: section ``[engine]`` of an ini file, read once into a frozen object.

Sizes are bytes, or a number with ``KiB``, ``MiB`` or ``GiB`` behind it; times are seconds. An
unknown option or a bad value is a ValueError that names the option, so that a misspelt limit
never silently keeps its default.
"""

from __future__ import annotations

import configparser
import os
import re
from dataclasses import dataclass, fields
from pathlib import Path

from swift_hapi.engine.budget import MemoryBudget
from swift_hapi.protocol.limits import Limits, MiB

SECTION = "engine"
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
DEVICES = ("cpu", "cuda", "auto")
_SHARE = re.compile(r"(\d{1,2}(?:\.\d{1,3})?)\s*%")
_CPU_LIST = re.compile(r"cpus:\s*(\d{1,4}(?:-\d{1,4})?(?:\s*,\s*\d{1,4}(?:-\d{1,4})?)*)")
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"(\d{1,15})\s*(KiB|MiB|GiB|)")
_SECONDS = re.compile(r"\d{1,7}(\.\d{1,6})?")
_MODE = re.compile(r"0?[0-7]{3}")
_MAX_GROUP = (1 << 32) - 2  #: the next one means "leave it as it is" to chown(2)
_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|")


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if not found or int(found.group(1)) == 0:
        raise ValueError("want a size above 0, e.g. 1048576, 512 KiB, 256 MiB or 2 GiB")
    return int(found.group(1)) * _UNITS[found.group(2)]


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise ValueError("want an integer above 0")
    return int(text)


def _number(text: str) -> int:
    if not re.fullmatch(r"\d{1,4}", text):
        raise ValueError("want an integer of 0 or more")
    return int(text)


def _niceness(text: str) -> int:
    if not re.fullmatch(r"\d{1,2}", text) or int(text) > 19:
        raise ValueError("want an integer from 0 (normal) to 19 (all others first)")
    return int(text)


@dataclass(frozen=True)
class Cpus:
    """CPUs of one process: the ones of ``ids``, or any ``count`` (0: as many as it may use)."""

    count: int = 0
    ids: tuple[int, ...] = ()

    @property
    def threads(self) -> int:
        return len(self.ids) or self.count or len(os.sched_getaffinity(0))


def _cpus(text: str) -> Cpus:
    found = _CPU_LIST.fullmatch(text)
    if found is None:
        if not re.fullmatch(r"\d{1,4}", text):
            raise ValueError("want a number (0 = as many as the process may use) or cpus:LIST")
        return Cpus(count=int(text))
    ids: set[int] = set()
    for part in found.group(1).split(","):
        first, _, last = part.strip().partition("-")
        if int(last or first) < int(first):
            raise ValueError(f"{part.strip()} is no range of CPUs")
        ids.update(range(int(first), int(last or first) + 1))
    return Cpus(ids=tuple(sorted(ids)))


def _budget(text: str) -> MemoryBudget:
    found = _SHARE.fullmatch(text)
    if found is None:
        return MemoryBudget(nbytes=_size(text))
    if float(found.group(1)) == 0:
        raise ValueError("want more than 0 %")
    return MemoryBudget(share=float(found.group(1)) / 100)


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError("want true or false")
    return _BOOLEANS[text.lower()]


def _device(text: str) -> str:
    if text not in DEVICES:
        raise ValueError(f"want one of {', '.join(DEVICES)}")
    return text


def _seconds(text: str) -> float:
    if _nonnegative(text) == 0:
        raise ValueError("want seconds above 0")
    return float(text)


def _nonnegative(text: str) -> float:
    if not _SECONDS.fullmatch(text):
        raise ValueError("want a number of 0 or more")
    return float(text)


def _mode(text: str) -> int:
    if not _MODE.fullmatch(text):
        raise ValueError("want an octal file mode such as 0600")
    return int(text, 8)


def _group(text: str) -> str:
    if not _GROUP.fullmatch(text):
        raise ValueError("want the name or number of a group, or nothing")
    if text.isdigit() and int(text) > _MAX_GROUP:
        raise ValueError(f"want a group's number of {_MAX_GROUP} at most")
    return text


def _path(text: str) -> Path:
    if not os.path.isabs(text):
        raise ValueError("want an absolute path")
    return Path(text)


def _log_level(text: str) -> str:
    if text.upper() not in LOG_LEVELS:
        raise ValueError(f"want one of {', '.join(LOG_LEVELS)}")
    return text.upper()


@dataclass(frozen=True)
class EngineConfig:
    """Every option with its default; ``etc/hapi-engine.conf-sample`` explains them."""

    socket: Path = Path("/run/swift-hapi/engine.sock")
    socket_mode: int = 0o600
    socket_group: str = ""
    model_dir: Path = Path("/var/lib/swift-hapi/models")
    cache_dir: Path = Path("/var/cache/swift-hapi")
    max_cache_bytes: int = 10240 * MiB
    workers: int = 1
    device: str = "cpu"
    engine_cpus: Cpus = Cpus()
    decode_threads: int = 0
    nice: int = 0
    memory_budget: MemoryBudget = MemoryBudget(share=0.25)
    batch_min: int = 4
    batch_max: int = 32
    batch_wait: float = 0.02
    batch_time: float = 0.4
    fixed_batch: bool = False
    measure_memory: bool = True
    max_sample_gflops: int = 4000
    queue_depth: int = 64
    account_concurrency: int = 16
    account_rate: float = 0.0
    account_metrics: int = 100
    admission_timeout: float = Limits.admission_timeout
    deadline: float = Limits.deadline
    drain_timeout: float = 30.0
    max_object_bytes: int = Limits.max_object_bytes
    max_samples: int = Limits.max_samples
    max_pixels: int = Limits.max_pixels
    max_output_bytes: int = Limits.max_output_bytes
    max_model_bytes: int = Limits.max_model_bytes
    log_level: str = "INFO"

    def __post_init__(self):
        if self.batch_min > self.batch_max:
            raise ValueError("batch_min is more than batch_max")

    @property
    def limits(self) -> Limits:
        """The limits of one request, as protocol and samples know them."""
        return Limits(**{field.name: getattr(self, field.name) for field in fields(Limits)})

    @property
    def decoders(self) -> int:
        """``decode_threads``, by default one for each CPU."""
        return self.decode_threads or self.engine_cpus.threads


_PARSERS = {
    "socket": _path,
    "socket_mode": _mode,
    "socket_group": _group,
    "model_dir": _path,
    "cache_dir": _path,
    "max_cache_bytes": _size,
    "workers": _count,
    "device": _device,
    "engine_cpus": _cpus,
    "decode_threads": _number,
    "nice": _niceness,
    "memory_budget": _budget,
    "batch_min": _count,
    "batch_max": _count,
    "batch_wait": _nonnegative,
    "batch_time": _seconds,
    "fixed_batch": _boolean,
    "measure_memory": _boolean,
    "max_sample_gflops": _count,
    "queue_depth": _count,
    "account_concurrency": _count,
    "account_rate": _nonnegative,
    "account_metrics": _number,
    "admission_timeout": _seconds,
    "deadline": _seconds,
    "drain_timeout": _seconds,
    "max_object_bytes": _size,
    "max_samples": _count,
    "max_pixels": _count,
    "max_output_bytes": _size,
    "max_model_bytes": _size,
    "log_level": _log_level,
}


def parse_config(text: str, origin: str = "configuration") -> EngineConfig:
    """Options from the text of an ini file.

    :raises ValueError: naming the option (or section) at fault and ``origin``
    """
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text, origin)
    except configparser.Error as error:
        raise ValueError(f"{origin}: {error}") from None
    if not parser.has_section(SECTION):
        raise ValueError(f"{origin}: has no section [{SECTION}]")
    values = {}
    for option, value in parser.items(SECTION):
        if option not in _PARSERS:
            raise ValueError(f"{origin}: [{SECTION}] knows no option {option!r}")
        try:
            values[option] = _PARSERS[option](value.strip())
        except ValueError as error:
            raise ValueError(f"{origin}: {option} = {value!r}: {error}") from None
    # A smaller batch_max alone is no contradiction.
    if "batch_min" not in values and "batch_max" in values:
        values["batch_min"] = min(EngineConfig.batch_min, values["batch_max"])
    try:
        return EngineConfig(**values)
    except ValueError as error:
        raise ValueError(f"{origin}: {error}") from None


def read_config(path: str | os.PathLike) -> EngineConfig:
    """Options from the file at ``path``.

    :raises ValueError: when an option is unknown or its value bad
    :raises OSError: when the file cannot be read
    """
    return parse_config(Path(path).read_text(encoding="utf-8"), str(path))
