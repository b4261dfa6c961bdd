"""Options and output that several commands share."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path

from hapi_compute.cli import early


def add_auth(parser: argparse.ArgumentParser) -> None:
    """``--auth-url --user --key``, with ``ST_AUTH ST_USER ST_KEY`` behind them, or ``--os-cloud``,
    with ``OS_*`` behind it."""
    group = parser.add_argument_group("store")
    group.add_argument("--auth-url", metavar="URL", help="auth v1 URL (default: $ST_AUTH)")
    group.add_argument("--user", metavar="USER", help="account:user (default: $ST_USER)")
    group.add_argument("--key", metavar="KEY", help="secret key (default: $ST_KEY)")
    group.add_argument(
        "--os-cloud", metavar="NAME",
        help="Keystone: cloud of clouds.yaml (default: $OS_CLOUD, or else other OS_* variables)",
    )  # fmt: skip
    group.add_argument(
        "--storage-url", metavar="URL", help="work in this account instead of the user's own"
    )
    group.add_argument(
        "--cacert", metavar="FILE", help="CAs to trust (default: $OS_CACERT, or the system's)"
    )


def client(args: argparse.Namespace):
    """The :class:`~hapi_compute.store.client.SwiftClient` the options ask for.

    :raises ValueError: an option is missing
    """
    from hapi_compute.cli.waiting import retrier
    from hapi_compute.store.client import SwiftClient

    return SwiftClient(login(args), retrier=retrier())


def login(args: argparse.Namespace):
    """:class:`~hapi_compute.store.auth.Credentials`, or
    :class:`~hapi_compute.store.keystone.KeystoneLogin` where ``--os-cloud`` is given, or where
    neither an option nor a variable speaks of auth v1 and some ``OS_*`` speaks of Keystone.

    :raises ValueError: an option is missing
    """
    v1 = (("auth_url", "ST_AUTH"), ("user", "ST_USER"), ("key", "ST_KEY"))
    values = {name: getattr(args, name) or os.environ.get(env, "") for name, env in v1}
    cacert = args.cacert or os.environ.get("OS_CACERT") or None
    if cacert is not None and not Path(cacert).exists():
        raise ValueError(f"cacert={cacert!r}: there is no such file")
    keystone = any(os.environ.get(name) for name in ("OS_CLOUD", "OS_AUTH_URL"))
    if args.os_cloud is not None or (keystone and not any(values.values())):
        from hapi_compute.store.keystone import KeystoneLogin

        cloud = args.os_cloud or os.environ.get("OS_CLOUD") or None
        return KeystoneLogin(cloud, args.storage_url, cacert)
    from hapi_compute.store.auth import Credentials

    for name, env in v1:
        if not values[name]:
            hint = "; for Keystone --os-cloud, or set OS_*" if not any(values.values()) else ""
            raise ValueError(f"give --{name.replace('_', '-')} or set {env}{hint}")
    return Credentials(**values, storage_url=args.storage_url, cacert=cacert)


def swift_url(text: str) -> str:
    """``container/prefix`` with or without ``swift://``, as ``swift://container/prefix``.

    :raises ValueError: another scheme
    """
    if re.match("(?!swift:)[a-z]+://", text):
        raise ValueError(f"{text!r}: want swift://container/prefix")
    return text if text.startswith("swift://") else f"swift://{text}"


def add_scan(parser: argparse.ArgumentParser) -> None:
    """How ``hapi extract``, ``predict`` and ``eval`` read a dataset."""
    from hapi_compute.infer.config import ENCODINGS, FEATURE_DTYPES, ScanConfig

    group = parser.add_argument_group("reading")
    default = ScanConfig("swift://c")
    group.add_argument(
        "--labels", metavar="WHERE",
        help="'path' (folder of the key), or a CSV or JSONL table of key and label, "
        "swift://C/OBJECT or a file (default: .cls or .json in the shard, the folder of a single "
        "image)",
    )  # fmt: skip
    for name, what, type_, metavar in (
        ("concurrency", "requests at once", int, "N"),
        ("prefetch", "shards read ahead", int, "N"),
        ("prefetch_bytes", "bound of the same in bytes", size, "SIZE"),
        ("micro_batch", "samples that run at once, at most", int, "N"),
        ("threads", "torch's CPU threads (default: all CPUs)", int, "N"),
        ("decode_threads", "decoders (default: half the CPUs)", int, "N"),
    ):
        value = getattr(default, name)
        group.add_argument(
            f"--{name.replace('_', '-')}", type=type_, metavar=metavar, default=value,
            help=what + ("" if value is None else f" ({value})"),
        )  # fmt: skip
    group.add_argument(
        "--dtype", choices=FEATURE_DTYPES, default=default.dtype,
        help=f"of features on the wire; float16 and int8 round them ({default.dtype})",
    )  # fmt: skip
    group.add_argument(
        "--encoding", choices=ENCODINGS, default=default.encoding,
        help=f"of features on the wire ({default.encoding})",
    )  # fmt: skip
    group.add_argument(
        "--require-pushdown", action="store_true",
        help="fail where the store cannot compute, rather than read the objects themselves",
    )  # fmt: skip


def scan_config(args: argparse.Namespace):
    """The :class:`~hapi_compute.infer.config.ScanConfig` that the options of :func:`add_scan` and
    ``args.dataset`` describe.

    :raises ValueError: an option is out of range
    """
    from hapi_compute.infer.config import ScanConfig

    early.check_labels(args.labels)
    values = {field: getattr(args, field) for field in ScanConfig.__dataclass_fields__}
    return ScanConfig(**values | {"dataset": swift_url(args.dataset)})


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", metavar="PATH", help="write a machine-readable report ('-': to stdout)"
    )


def write_json(path: str | None, document: dict, *, private: bool = False) -> None:
    """Write ``document`` where ``--json`` says (see :mod:`hapi_compute.train.files`)."""
    if path is None:
        return
    from hapi_compute.train.files import write_whole

    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    write_whole(path, text.encode("utf-8", "surrogatepass"), private=private)


def check_target(path: str | os.PathLike | None, option: str) -> None:
    """Find out before the work, not after it, that its result has no place.

    :param path: of a file to write, in directories that are made; None, ``-``: no file
    :raises ValueError: nothing can be written there
    """
    if path is not None and str(path) != "-":
        from hapi_compute.train.files import check_writable

        check_writable(str(path), option)


def check_range(name: str, value: float | None, low: float, high: float) -> None:
    """:raises ValueError: ``value`` is there and out of range"""
    if value is not None and not low <= value <= high:
        raise ValueError(f"{name}={value}: want {low} to {high}")


def printable(text: str) -> str:
    """``text`` on one line: what is no character for a terminal is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Bar:
    """A progress bar on a terminal, a line now and then elsewhere; called with (done, total)."""

    _EVERY = 10.0  #: seconds between two lines

    def __init__(self, unit: str):
        self._unit = unit
        self._bar = None
        self._last = time.monotonic()
        self.done, self.total = 0, None  #: as told last

    def __enter__(self) -> Bar:
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(unit=self._unit, file=sys.stderr, leave=False)
        return self

    def __exit__(self, *_exc) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, done: int, total: int | None) -> None:
        self.done, self.total = done, total
        if self._bar is not None:
            self._bar.total = total
            self._bar.update(done - self._bar.n)
        elif time.monotonic() - self._last >= self._EVERY:
            self._last = time.monotonic()
            of = "" if total is None else f" of {total}"
            self.note(f"{done}{of} {self._unit}s")

    def note(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def size(text: str) -> int:
    """``16MB``, ``512 KiB`` or ``65536`` in bytes; for ``type=`` of an argument."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?I?B?)\s*", text, re.IGNORECASE)
    unit = _UNITS.get(found.group(2).upper()) if found else None
    if unit is None:
        raise argparse.ArgumentTypeError(f"{text!r}: want a size such as 16MB or 512KiB")
    return int(float(found.group(1)) * unit)
