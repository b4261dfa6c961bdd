"""Errors as the command line tells them."""

from __future__ import annotations

import argparse
import re

#: of files that an option names and that are not there, or are of another kind
NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


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
    return re.sub(r"( (?:needs|contradicts|with another) )(\w+)(?=[ =:,]|$)", spelling, text)
