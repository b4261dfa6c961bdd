"""What can be found out about options before anything heavy is imported."""

from __future__ import annotations

import re
from pathlib import Path

#: of files with weights; of anything else torch and timm know more
_WEIGHTS = (".safetensors", ".pth", ".pt", ".bin")


def check_labels(where: str | None) -> None:
    """:raises ValueError: ``--labels`` names a file that is not there"""
    if where is None or where == "path" or where.startswith("swift://"):
        return
    if not Path(where).is_file():
        raise ValueError(f"labels={where!r}: there is no such file")


def check_code(name: str, reference: str | None, *, needed: bool = False) -> None:
    """:param needed: it can be nothing but ``FILE.py:FACTORY``
    :raises ValueError: the file is not there
    """
    if reference is None:
        return
    file, colon, factory = reference.rpartition(":")
    if not (file.endswith(".py") and colon and factory.isidentifier()):
        if needed or reference.endswith(".py"):
            raise ValueError(f"{name}={reference!r}: want path/to/file.py:factory")
        return
    if not Path(file).is_file():
        raise ValueError(f"{name}={reference!r}: there is no file {file}")


def check_weights(weights: str) -> None:
    """:raises ValueError: it is a file that is not there"""
    if Path(weights).suffix in _WEIGHTS and not Path(weights).is_file():
        raise ValueError(f"weights={weights!r}: there is no such file")


def check_split(split: str) -> None:
    """:raises ValueError: no cut can have that name"""
    if not re.fullmatch(r"[A-Za-z0-9_.\-]+", split):
        raise ValueError(f"split={split!r}: want auto, raw, or the name or index of a cut")


def check_product(run: str) -> None:
    """:raises ValueError: no run has left its model there"""
    for name in ("model.json", "model.safetensors"):
        if not Path(run, name).is_file():
            raise ValueError(
                f"run={run!r}: holds no {name}; want what 'hapi train --out DIR' wrote when it "
                "was done"
            )
