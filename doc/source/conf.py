"""Sphinx configuration of the swift-hapi manual."""

import os
from pathlib import Path

from hapi_compute.cli.main import COMMANDS, build_parser
from swift_hapi.graph import caps

project = "swift-hapi"
author = "the swift-hapi developers"
copyright = "the swift-hapi developers, Apache-2.0"  # noqa: A001
extensions = []
html_theme = "alabaster"
html_theme_options = {
    "description": "Near-data transfer learning for OpenStack Swift",
    "fixed_sidebar": True,
}
exclude_patterns = ["_wire.rst"]
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


def _write_limits() -> None:
    """The limits of extractor files as substitutions, for extractor.rst: likewise."""
    limits = {name: getattr(caps, name) for name in vars(caps) if name.startswith("MAX_")}
    limits |= {name: getattr(caps.DEFAULT, name) for name in caps.DEFAULT.__dataclass_fields__}
    lines = [f".. |{name}| replace:: {_number(name, value)}" for name, value in limits.items()]
    (Path(__file__).parent / "_help" / "limits.txt").write_text("\n".join(lines) + "\n")


def _number(name: str, value: float) -> str:
    if name.endswith("_bytes") or name == "MAX_HEADER":
        return f"{value / 2**20:,.0f} MiB"
    if value >= 1e9:
        digits, _, power = f"{value:.0e}".partition("e+")
        return f"{'' if digits == '1' else digits + ' * '}10\\ :sup:`{int(power)}`"
    return f"{value:,}"


_write_help()
_write_limits()
