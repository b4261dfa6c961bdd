"""What the storage side loads and runs has no way to execute what a file says."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import swift_hapi.graph

DIRECTORY = Path(swift_hapi.graph.__file__).parent
#: for the compute side only: they take live models apart
COMPUTE_SIDE = {"branches", "trace", "tracer", "split", "trainable", "classifier"}
FORBIDDEN_CALLS = {"exec", "eval", "compile", "__import__", "import_module", "setattr"}
FORBIDDEN_IMPORTS = ("pickle", "importlib", "torch.fx", "torch.export", "torch.jit")


def test_storage_side_never_imports_the_tracing_side():
    program = (
        "import sys, swift_hapi.graph.interpreter, swift_hapi.graph.memory; "
        "print(*sorted(m for m in sys.modules if m.startswith(('swift_hapi', 'torchvision'))))"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "swift_hapi.graph.extractor" in out
    assert not [m for m in out if m.rpartition(".")[2] in COMPUTE_SIDE]
    assert not [m for m in out if m.startswith("torchvision")]


STORAGE_SIDE = sorted(p for p in DIRECTORY.glob("*.py") if p.stem not in COMPUTE_SIDE)


def test_the_compute_side_is_named_rightly():
    assert {path.stem for path in DIRECTORY.glob("*.py")} >= COMPUTE_SIDE


@pytest.mark.parametrize("path", STORAGE_SIDE, ids=lambda path: path.stem)
def test_no_code_generation_or_lookup_by_name(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"{path.name}:{node.lineno}"
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        assert not [n for n in names if n.startswith(FORBIDDEN_IMPORTS)], path.name
