"""What setup.cfg says is what the tree has."""

import configparser
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def declared() -> set[str]:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return set(parser["options"]["packages"].split())


def in_tree() -> set[str]:
    found = set()
    for base in (ROOT, ROOT / "compute"):
        for top in ("swift_hapi", "hapi_compute"):
            for init in (base / top).rglob("__init__.py"):
                found.add(".".join(init.parent.relative_to(base).parts))
    return found


def test_every_package_is_declared():
    assert declared() == in_tree()


def test_entry_points_load():
    scripts = {e.name: e for e in entry_points(group="console_scripts") if "hapi" in e.value}
    assert set(scripts) == {"hapi", "hapi-engine"}
    assert callable(scripts["hapi"].load())
    (filter_,) = [e for e in entry_points(group="paste.filter_factory") if e.name == "hapi"]
    assert filter_.value == "swift_hapi.middleware:filter_factory"


def loaded_by(code: str) -> set[str]:
    """Top-level packages in sys.modules after ``code`` ran in a fresh interpreter."""
    code += "\nimport sys; print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    return set(line.split()[1:])


@pytest.mark.parametrize(
    ("code", "never"),
    [
        (
            "from swift_hapi.middleware import filter_factory\n"
            "import swift_hapi.middleware.filter",
            {"torch", "numpy", "PIL", "safetensors"},
        ),
        ("import swift_hapi.engine.main, swift_hapi.engine.app", {"swift", "eventlet"}),
        ("import swift_hapi.cluster", {"torch", "swift", "eventlet", "numpy"}),
        (
            "from hapi_compute.cli.main import build_parser; build_parser().format_help()",
            {"torch", "numpy", "requests", "swift", "PIL"},
        ),
        ("from hapi_compute.cli.main import build_parser; build_parser('train')", {"torch"}),
    ],
)
def test_what_an_import_does_not_load(code, never):
    assert not loaded_by(code) & never
