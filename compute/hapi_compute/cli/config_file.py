"""``--config run.yaml``: options from a file, under those on the command line.

The file is a YAML mapping of option names, with dashes or underscores, without the leading ones::

    dataset: swift://pets/train
    model: resnet18
    batch-size: 64
    resume: true
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE",
        help="YAML file of options, by their names here; the command line goes before it",
    )  # fmt: skip


def config_path(argv: list[str]) -> str | None:
    """What ``argv`` says for ``--config``."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config")
    try:
        return finder.parse_known_args(argv)[0].config
    except SystemExit:
        return None  # "--config" without a value: the real parser says so.


def apply(parser: argparse.ArgumentParser, path: str) -> None:
    """Make what the file says the defaults of ``parser``.

    :raises OSError: it cannot be read
    :raises ValueError: it is no such mapping, or a value does not suit its option
    """
    actions = {
        name: action
        for action in parser._actions
        for name in (action.dest, *(each.lstrip("-") for each in action.option_strings))
        if not isinstance(action, argparse._HelpAction)
    }
    for key, value in _read(path).items():
        name = str(key)
        action = actions.get(name) or actions.get(name.replace("-", "_"))
        if action is None or action.dest in ("config", "help"):
            raise ValueError(f"{path}: there is no option {name!r}")
        if value is not None:
            parser.set_defaults(**{action.dest: _value(action, value, f"{path}: {name}")})
            action.required = False
            if not action.option_strings:
                action.nargs = "?"


def _read(path: str) -> dict:
    try:
        import yaml
    except ImportError:
        raise ValueError("--config needs PyYAML: pip install 'swift-hapi[compute]'") from None
    try:
        document = yaml.safe_load(Path(path).read_bytes())
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ValueError(f"{path}: is nested too deeply") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError(f"{path}: want a mapping of options")
    return document


def _value(action: argparse.Action, value: object, where: str) -> object:
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ValueError(f"{where}={value!r}: want true or false")
        return value
    if isinstance(value, list) and action.nargs in ("*", "+"):
        return [_one(action, each, where) for each in value]
    return _one(action, value, where)


def _one(action: argparse.Action, value: object, where: str) -> object:
    if isinstance(value, bool | list | dict):
        raise ValueError(f"{where}={value!r}: want one value")
    text = str(value)
    try:
        found = text if action.type is None else action.type(text)
    except (argparse.ArgumentTypeError, ValueError) as error:
        name = getattr(action.type, "__name__", "")
        why = error if isinstance(error, argparse.ArgumentTypeError) else f"want {name}"
        raise ValueError(f"{where}={value!r}: {why}") from None
    if action.choices is not None and found not in action.choices:
        raise ValueError(f"{where}={value!r}: want {' or '.join(map(str, action.choices))}")
    return found
