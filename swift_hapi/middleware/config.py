"""Options of the filter's section, parsed once when the proxy starts."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, fields

from swift.common.utils import (
    config_float_value,
    config_positive_float_value,
    config_positive_int_value,
)

from swift_hapi.protocol.headers import DEFAULT_MODEL_CONTAINER
from swift_hapi.protocol.limits import Limits

MAX_AUTH_CACHE_TIME = 60.0
#: Linux keeps 108 bytes for the path of a unix socket, the terminating zero included.
MAX_SOCKET_PATH = 107
#: Whose consent is asked for: nobody's, the account's or the container's owner's.
OPT_IN = ("off", "account", "container")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_TRUE = frozenset({"true", "1", "yes", "on", "t", "y"})
_FALSE = frozenset({"false", "0", "no", "off", "f", "n"})
#: What Paste and Swift themselves put into or read from a filter's section.
_FOREIGN = ("log_", "access_log_", "statsd_", "set ", "__", "use", "paste.")


def _boolean(value: str) -> bool:
    # Swift's config_true_value reads every misspelt "ture" as false; here it is an error.
    word = str(value).strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(f"{value!r} is neither true nor false")
    return word in _TRUE


def _opt_in(value: str) -> str:
    word = value.strip().lower()
    if word not in OPT_IN:
        raise ValueError(f"{value!r} is none of {', '.join(OPT_IN)}")
    return word


def _socket_path(value: str) -> str:
    scheme, _, path = value.strip().partition(":")
    if scheme != "unix" or not path.startswith("/"):
        raise ValueError(f"{value!r} is not of the form unix:/absolute/path")
    if len(path.encode()) > MAX_SOCKET_PATH:
        raise ValueError(f"the path has more than {MAX_SOCKET_PATH} bytes: {path!r}")
    return path


def _container(value: str) -> str:
    name = value.strip()
    if not name or re.search(r"[/\x00-\x1f\x7f]", name) or len(name.encode()) > 256:
        raise ValueError(f"{value!r} is not a container name")
    return name


def _seconds(value: str) -> float:
    seconds = config_positive_float_value(value)
    if not math.isfinite(seconds):
        raise ValueError(f"{value!r} is no number of seconds")
    return seconds


def _cache_time(value: str) -> float:
    seconds = config_float_value(value, minimum=0, maximum=MAX_AUTH_CACHE_TIME)
    if not math.isfinite(seconds):
        raise ValueError(f"{value!r} is no number of seconds")
    return seconds


def _bytes(value: str) -> int:
    number, unit = value.strip(), 1
    for suffix, factor in _UNITS.items():
        if number.endswith(suffix):
            number, unit = number.removesuffix(suffix).rstrip(), factor
    return unit * config_positive_int_value(number)


_PARSERS = {
    "engine": _socket_path,
    "model_container": _container,
    "allow_anonymous": _boolean,
    "opt_in": _opt_in,
    "auth_cache_time": _cache_time,
    "auth_cache_size": config_positive_int_value,
    "connect_timeout": _seconds,
    "admission_timeout": _seconds,
    "deadline": _seconds,
    "max_object_bytes": _bytes,
    "max_model_bytes": _bytes,
    "max_samples": config_positive_int_value,
    "max_pixels": config_positive_int_value,
    "max_output_bytes": _bytes,
    "strict_pipeline": _boolean,
}


@dataclass(frozen=True)
class FilterConfig:
    """The filter's options; their meaning is in :mod:`swift_hapi.middleware.filter`.

    ``engine`` is the path of the engine's socket, without the ``unix:``.
    """

    engine: str
    model_container: str = DEFAULT_MODEL_CONTAINER
    allow_anonymous: bool = False
    opt_in: str = OPT_IN[0]
    auth_cache_time: float = MAX_AUTH_CACHE_TIME
    auth_cache_size: int = 1024
    connect_timeout: float = 1.0
    admission_timeout: float = Limits.admission_timeout
    deadline: float = Limits.deadline
    max_object_bytes: int = Limits.max_object_bytes
    max_model_bytes: int = Limits.max_model_bytes
    max_samples: int = Limits.max_samples
    max_pixels: int = Limits.max_pixels
    max_output_bytes: int = Limits.max_output_bytes
    strict_pipeline: bool = True

    @classmethod
    def from_conf(cls, conf: dict[str, str]) -> FilterConfig:
        """Parse a Paste section.

        :raises ValueError: naming the option at fault
        """
        if not conf.get("engine"):
            raise ValueError("hapi: option engine is missing: engine = unix:/path/of/socket")
        values = {}
        for name, parse in _PARSERS.items():
            if name not in conf:
                continue
            try:
                values[name] = parse(conf[name])
            except ValueError as err:
                raise ValueError(f"hapi: option {name}: {err}") from err
        return cls(**values)

    def limits(self) -> dict[str, int | float]:
        """The limits that ``/info`` publishes."""
        return {f.name: getattr(self, f.name) for f in fields(Limits)}


def unknown_options(local_conf: dict[str, str]) -> list[str]:
    """One sentence for each option of the filter's own section that means nothing here."""
    sentences = []
    for name in sorted(local_conf):
        if name in _PARSERS or name.startswith(_FOREIGN):
            continue
        close = difflib.get_close_matches(name, _PARSERS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        sentences.append(f"option {name} is unknown and ignored{hint}")
    return sentences
