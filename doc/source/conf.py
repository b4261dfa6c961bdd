"""Sphinx configuration of the swift-hapi manual."""

import os
from pathlib import Path

from hapi_compute.cli.main import COMMANDS, build_parser

project = "swift-hapi"
author = "the swift-hapi developers"
copyright = "the swift-hapi developers, Apache-2.0"  # noqa: A001
extensions = []
html_theme = "alabaster"
html_theme_options = {
    "description": "Near-data transfer learning for OpenStack Swift",
    "fixed_sidebar": True,
}
exclude_patterns = []
nitpicky = True


def _write_help() -> None:
    """What the commands say of themselves, for cli.rst: so the manual cannot disagree."""
    os.environ["COLUMNS"] = "96"
    target = Path(__file__).parent / "_help"
    target.mkdir(exist_ok=True)
    for command in COMMANDS:
        subparsers = build_parser(command)._subparsers._group_actions[0].choices
        parser = subparsers[command]
        text = parser.format_help()
        if parser._subparsers is not None:
            for action in parser._subparsers._group_actions[0].choices.values():
                text += "\n" + action.format_help()
        (target / f"{command}.txt").write_text(text)


_write_help()
