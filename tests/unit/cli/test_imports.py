"""Commands that need no network of neurons start without what is heavy to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hapi_compute.cli.main import COMMANDS

HEAVY = {"torch", "torchvision", "numpy", "PIL", "swift", "openstack", "matplotlib"}


def loaded(code: str) -> set[str]:
    """Top-level packages in sys.modules after ``code`` ran in a fresh interpreter."""
    code += "\nimport sys; print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    return set(line.split()[1:])


def test_the_help_of_the_tool():
    code = (
        "from hapi_compute.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit as e: assert e.code == 0"
    )
    assert not loaded(code) & (HEAVY | {"requests"})


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command(command):
    code = (
        "from hapi_compute.cli.main import main\n"
        f"try: main([{command!r}, '--help'])\nexcept SystemExit as e: assert e.code == 0"
    )
    assert not loaded(code) & {"torch", "torchvision", "swift", "openstack"}


@pytest.mark.parametrize("argv", [["ls"], ["ls", "c"], ["models", "ls"]])
def test_listing(swift, hapi, argv):
    swift.put("c", "o", b"x")
    code = f"from hapi_compute.cli.main import main\nassert main({argv!r}) == 0"
    assert not loaded(code) & HEAVY
