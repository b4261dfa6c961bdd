"""Datasets of torchvision as what ``hapi put`` reads: ``torchvision:NAME:ROOT[:OPTION=VALUE...]``.

Where a dataset is a list of files, the files are taken as they are; else each image is written as
PNG, which loses nothing.
"""

from __future__ import annotations

import inspect
import io
from dataclasses import dataclass
from pathlib import Path

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.keys import Keys
from hapi_compute.data.source import Source, SourceSample, of_file
from swift_hapi.samples.shard import KINDS

PREFIX = "torchvision:"
#: parameters that are set here, or that would change what is stored
_OURS = {
    "self", "root", "transform", "target_transform", "transforms", "download", "loader",
    "is_valid_file",
}  # fmt: skip
_WORDS = {"True": True, "true": True, "False": False, "false": False}


@dataclass(frozen=True)
class ItemContent:
    """One image of a dataset, as PNG."""

    dataset: object
    index: int

    def read(self) -> bytes:
        stream = io.BytesIO()
        self.dataset[self.index][0].save(stream, "PNG")
        return stream.getvalue()


def open_torchvision(text: str, download: bool = False) -> Source:
    """Open a dataset.

    :param text: ``torchvision:CIFAR10:/data:train=False``
    :param download: whether torchvision may fetch what is not there
    :raises ValueError: not of that form, no such dataset, or an option it does not take
    :raises DatasetError: it is not there, or does not consist of labelled images
    """
    from torchvision import datasets

    name, root, options = parse(text)
    kind = getattr(datasets, name, None) if name in datasets.__all__ else None
    if kind is None:
        raise ValueError(f"{text!r}: torchvision has no dataset {name!r}")
    takes = inspect.signature(kind.__init__).parameters
    for option in options:
        if option not in set(takes) - _OURS:
            fit = ", ".join(sorted(set(takes) - _OURS))
            raise ValueError(f"{text!r}: {name} takes {fit}, not {option!r}")
    if "root" in takes:
        options["root"] = root
    if "download" in takes:
        options["download"] = download
    try:
        dataset = kind(**options)
    except (RuntimeError, FileNotFoundError) as error:
        hint = "" if download or "download" not in takes else " (--download fetches it)"
        raise DatasetError(f"{text}: {' '.join(str(error).split())}{hint}") from None
    return _source(text, dataset)


def parse(text: str) -> tuple[str, str, dict[str, object]]:
    """(name, root, options).

    :raises ValueError: not of that form
    """
    name, _, rest = text.removeprefix(PREFIX).partition(":")
    root, *pairs = rest.split(":")
    if not name or not root or not all("=" in pair for pair in pairs):
        raise ValueError(f"{text!r}: want torchvision:NAME:ROOT[:OPTION=VALUE...]")
    options = {}
    for pair in pairs:
        option, _, value = pair.partition("=")
        number = int(value) if value.isascii() and value.isdigit() else value
        options[option] = _WORDS.get(value, number)
    return name, root, options


def _source(text: str, dataset) -> Source:
    keys, samples, root = Keys(), [], Path(parse(text)[1])
    files = _files(dataset)
    top = -1
    for index in range(len(dataset)):
        if files is not None:
            path, label = files[index]
        else:
            path, label = None, dataset[index][1]
        if isinstance(label, bool) or not hasattr(label, "__index__") or int(label) < 0:
            raise DatasetError(f"{text}: item {index} has {label!r} for a label, not a class")
        label = int(label)
        top = max(top, label)
        key = keys.unique(f"{index:06d}")
        if path is not None:
            name = path.relative_to(root) if path.is_relative_to(root) else path
            samples.append(of_file(key, label, path, str(name)))
        else:
            content = ItemContent(dataset, index)
            if not hasattr(dataset[index][0], "save"):
                raise DatasetError(f"{text}: item {index} is no image")
            size = len(content.read())
            where = f"{text}[{index}]"
            samples.append(SourceSample(key, label, "png", size, where, content))
    if not samples:
        raise DatasetError(f"{text}: is empty")
    return Source(tuple(samples), _classes(dataset, top))


def _files(dataset) -> list[tuple[Path, int]] | None:
    """The files of a dataset that has a list of them, if all are of a kind that shards hold."""
    found = getattr(dataset, "samples", None)
    if not isinstance(found, list) or len(found) != len(dataset):
        return None
    pairs = []
    for each in found:
        if not isinstance(each, tuple) or len(each) != 2:
            return None
        path = Path(str(each[0]))
        if path.suffix.lower().removeprefix(".") not in KINDS:
            return None
        pairs.append((path, each[1]))
    return pairs


def _classes(dataset, top: int) -> tuple[str, ...]:
    names = getattr(dataset, "classes", None)
    if not isinstance(names, list | tuple) or len(names) <= top:
        return tuple(str(number) for number in range(top + 1))
    names = [name[0] if isinstance(name, tuple) else name for name in names]
    return tuple(str(name) for name in names)
