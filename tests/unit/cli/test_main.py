from __future__ import annotations

import pytest

from hapi_compute.cli import exit_codes
from hapi_compute.cli.main import COMMANDS, build_parser, main

#: what each command must be given
NEEDED = {
    "cluster": ["status", "--dir", "d"],
    "cuts": ["m"],
    "engine": ["status", "--dir", "d"],
    "eval": ["c/p", "--run", "r"],
    "export": ["m", "--weights", "w", "--freeze-at", "f", "-o", "o"],
    "extract": ["c/p", "--model", "m", "--cut", "k", "--out", "o.npy"],
    "plan": ["c/p", "--model", "m", "--weights", "w", "--freeze-at", "f"],
    "predict": ["c/p", "--run", "r"],
    "put": ["d", "swift://c/p"],
    "train": ["swift://c/p", "--model", "m", "--weights", "w", "--freeze-at", "f"],
    "verify": ["swift://c/p"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_verbose_before_and_after_every_command(command):
    needed, parser = NEEDED.get(command, []), build_parser(command)
    assert parser.parse_args([command, *needed]).verbose is False
    for argv in (
        ["-v", command, *needed],
        ["--verbose", command, *needed],
        [command, "-v", *needed],
        [command, *needed, "-v"],
        ["-v", command, *needed, "-v"],
    ):
        assert parser.parse_args(argv).verbose is True, argv


@pytest.mark.parametrize("argv", [["-v", "cuts", "no-such"], ["cuts", "-v", "no-such"]])
def test_a_traceback_where_asked_for(argv, capsys):
    assert main(argv) == exit_codes.USAGE
    error = capsys.readouterr().err
    assert "Traceback" in error and error.splitlines()[-1].startswith("hapi cuts: ")


def test_one_line_where_not(capsys):
    assert main(["cuts", "no-such"]) == exit_codes.USAGE
    error = capsys.readouterr().err
    assert error.startswith("hapi cuts: ") and error.count("\n") == 1


def test_no_command_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as left:
        main(["-v"])
    assert left.value.code == exit_codes.USAGE
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_looks_first_whether_its_report_has_a_place(command, capsys, monkeypatch):
    monkeypatch.setattr(
        f"{COMMANDS[command][0]}.run", lambda args: pytest.fail("the command was run")
    )
    assert main([command, *NEEDED.get(command, []), "--json", "/proc/x"]) == exit_codes.USAGE
    assert f"hapi {command}: --json: '/proc/x' cannot be written" in capsys.readouterr().err


def test_other_files_are_looked_at_first_too(capsys):
    train = NEEDED["train"][1:]
    for argv in (
        ["predict", *NEEDED["predict"], "-o", "/proc/x"],
        ["export", "m", "--weights", "w", "--freeze-at", "f", "-o", "/proc/x"],
        ["extract", "c/p", "--model", "m", "--cut", "k", "--out", "/proc/x.npy"],
        ["plan", "swift://c/p", *train, "--plot", "/proc/x.png"],
    ):
        assert main(argv) == exit_codes.USAGE
        assert "cannot be written" in capsys.readouterr().err
