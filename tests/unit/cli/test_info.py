from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("info", "pushdown", "line"),
    [
        ({}, None, "does not publish /info"),
        ({"swift": {"version": "2.38.3"}}, False, "no push-down"),
        (
            {"swift": {"version": "2.38.3"}, "swift_hapi": {"version": "1.2", "limits": {}}},
            True,
            "push-down by swift_hapi 1.2",
        ),
    ],
)
def test_what_the_cluster_runs(swift, hapi, capsys, info, pushdown, line):
    swift.info = info
    code, report = hapi("info")
    assert code == 0 and report["pushdown"] is pushdown
    assert report["swift_hapi"] == info.get("swift_hapi")
    assert line in capsys.readouterr().out


def test_limits_are_readable(swift, hapi, capsys):
    limits = {"max_object_bytes": 256 << 20, "max_samples": 4096}
    swift.info = {"swift_hapi": {"version": "1", "dtypes": ["float32"], "limits": limits}}
    assert hapi("info")[0] == 0
    out = capsys.readouterr().out
    assert "268435456 (256 MiB)" in out and "4096" in out and "float32" in out
