"""Running ``hapi`` against a cluster, in this process or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from hapi_compute.cli.main import main


def environment(cluster) -> dict[str, str]:
    """What tells ``hapi`` where the cluster is."""
    return {"ST_AUTH": cluster.auth_url, "ST_USER": cluster.user, "ST_KEY": cluster.key}


def hapi(cluster, monkeypatch, *argv: str) -> int:
    """Exit code."""
    for name, value in environment(cluster).items():
        monkeypatch.setenv(name, value)
    return main([str(word) for word in argv])


def report_of(cluster, monkeypatch, tmp_path: Path, *argv: str) -> dict:
    """The ``--json`` of a command that must succeed."""
    path = tmp_path / "report.json"
    assert hapi(cluster, monkeypatch, *argv, "--json", path) == 0
    return json.loads(path.read_text())


def start(cluster, *argv: str, **options) -> subprocess.Popen:
    """``hapi`` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "hapi_compute.cli.main", *map(str, argv)],
        env=os.environ | environment(cluster),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
