from __future__ import annotations

import json

import pytest

from hapi_compute.cli.main import main


@pytest.fixture
def hapi(swift, monkeypatch, tmp_path):
    """``hapi(*argv)``: exit code and ``--json`` report (None if none was written)."""
    monkeypatch.setenv("ST_AUTH", f"{swift.url}/auth")
    monkeypatch.setenv("ST_USER", "test:tester")
    monkeypatch.setenv("ST_KEY", "testing")

    def run(*argv) -> tuple[int, dict | None]:
        path = tmp_path / "report.json"
        path.unlink(missing_ok=True)
        code = main([*map(str, argv), "--json", str(path)])
        return code, json.loads(path.read_text()) if path.exists() else None

    return run
