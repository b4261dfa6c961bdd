"""Errors as the command line tells them."""

from __future__ import annotations

import argparse
import re

#: of files that an option names and that are not there, or are of another kind
NOT_THERE = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)


def explained(error: Exception, parser: argparse.ArgumentParser) -> str:
    """One line: files first, options as they are written on the command line."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"
    return spelled(str(error), parser)


def spelled(text: str, parser: argparse.ArgumentParser) -> str:
    """``text`` with ``--batch-size`` for ``batch_size`` where the option is meant."""
    names = {}
    for action in parser._actions:
        for option in action.option_strings:
            if option.startswith("--"):
                names[option[2:].replace("-", "_")] = option

    def spelling(found: re.Match) -> str:
        return found[1] + names.get(found[2], found[2])

    # At the beginning, or after words that an option follows.
    text = re.sub(r"^()(\w+)(?==|: | needs | contradicts | is missing)", spelling, text)
    text = re.sub(r"^(--[\w-]+ (?:needs|contradicts) )(\w+)(?=[ =:,]|$)", spelling, text)
    return re.sub(r"( with another )(\w+)(?=: )", spelling, text)


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 sample``, ``2 samples``; ``2 classes`` where ``many`` says so."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def classes(number: int) -> str:
    return count(number, "class", "classes")


def size(number: float) -> str:
    """Bytes for people: ``481 B``, ``10.2 kB``, ``1.1 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if round(number, 1) < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError("unreachable")
