from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys

import pytest

from hapi_compute.cli import options
from hapi_compute.cli.main import build_parser, main
from hapi_compute.store.auth import Credentials
from hapi_compute.store.keystone import KeystoneLogin
from hapi_compute.train.config import TrainConfig


@pytest.mark.parametrize(
    ("text", "expected"),
    [("65536", 65536), ("16MB", 16_000_000), ("1.5 KiB", 1536), ("2gib", 2 << 30), ("7B", 7)],
)
def test_sizes(text, expected):
    assert options.size(text) == expected


@pytest.mark.parametrize("text", ["", "MB", "16TB", "-1", "1e3", "16I"])
def test_bad_sizes(text):
    with pytest.raises(argparse.ArgumentTypeError):
        options.size(text)


def parse(*argv: str) -> argparse.Namespace:
    return build_parser(argv[0]).parse_args(argv)


def test_credentials_from_flags_over_environment(monkeypatch):
    for name in ("ST_AUTH", "ST_USER", "ST_KEY"):
        monkeypatch.delenv(name, raising=False)
    args = parse("put", "d", "swift://c", "--user", "u")
    with pytest.raises(ValueError, match="--auth-url or set ST_AUTH"):
        options.client(args)
    monkeypatch.setenv("ST_AUTH", "http://a/auth")
    monkeypatch.setenv("ST_USER", "other")
    monkeypatch.setenv("ST_KEY", "k")
    credentials = options.client(args).credentials
    assert (credentials.auth_url, credentials.user, credentials.key) == ("http://a/auth", "u", "k")


def test_json_goes_to_a_file_or_to_stdout(tmp_path, capsys):
    path = tmp_path / "r.json"
    options.write_json(str(path), {"a": "ä"})
    assert json.loads(path.read_text()) == {"a": "ä"}
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]
    options.write_json("-", {"b": 1})
    assert json.loads(capsys.readouterr().out) == {"b": 1}
    options.write_json(None, {"c": 1})


def test_train_has_an_option_for_every_field_with_the_same_default():
    args = parse(
        "train", "swift://c/p", "--model", "m", "--weights", "w", "--freeze-at", "f"
    )
    given = {f.name: getattr(args, f.name) for f in dataclasses.fields(TrainConfig)}
    assert TrainConfig(**given) == TrainConfig("swift://c/p", "m", "w", "f")


def test_usage_errors_have_their_exit_code(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ST_AUTH", "http://127.0.0.1:9/auth")
    monkeypatch.setenv("ST_USER", "u")
    monkeypatch.setenv("ST_KEY", "k")
    assert main(["put", str(tmp_path), "swift://"]) == 2
    assert main(["put", str(tmp_path), "swift://c/p", "--shard-samples", "0"]) == 2
    model = ["--model", "m", "--weights", "w", "--freeze-at", "f"]
    assert main(["train", "swift://c/p", *model, "--epochs", "0"]) == 2
    assert "epochs=0: want 1 to" in capsys.readouterr().err


def test_help_does_not_import_torch():
    code = (
        "import sys; from hapi_compute.cli.main import build_parser\n"
        "for c in ('put', 'train'): build_parser(c).format_help()\n"
        "sys.exit('torch' in sys.modules or 'requests' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_keystone_where_nothing_speaks_of_auth_v1(monkeypatch, tmp_path):
    for name in ("ST_AUTH", "ST_USER", "ST_KEY", "OS_CLOUD", "OS_CACERT"):
        monkeypatch.delenv(name, raising=False)
    args = parse("ls")
    monkeypatch.delenv("OS_AUTH_URL", raising=False)
    with pytest.raises(ValueError, match="give --auth-url or set ST_AUTH; for Keystone"):
        options.login(args)
    monkeypatch.setenv("OS_AUTH_URL", "http://k/v3")
    assert options.login(args) == KeystoneLogin()
    monkeypatch.setenv("OS_CLOUD", "mine")
    assert options.login(args) == KeystoneLogin("mine")
    assert options.login(parse("ls", "--os-cloud", "other")).cloud == "other"
    for name, value in (("AUTH", "http://a"), ("USER", "u"), ("KEY", "k")):
        monkeypatch.setenv(f"ST_{name}", value)
    assert options.login(args) == Credentials("http://a", "u", "k")
    assert options.login(parse("ls", "--os-cloud", "other")).cloud == "other"


def test_cas(monkeypatch, tmp_path):
    argv = ["ls", "--auth-url", "https://a", "--user", "u", "--key", "k"]
    monkeypatch.delenv("OS_CACERT", raising=False)
    assert options.login(parse(*argv)).verify is True
    with pytest.raises(ValueError, match="cacert='/none': there is no such file"):
        options.login(parse(*argv, "--cacert", "/none"))
    path = tmp_path / "ca.pem"
    path.write_text("")
    monkeypatch.setenv("OS_CACERT", str(path))
    assert options.login(parse(*argv)).verify == str(path)


def test_names_on_a_terminal():
    assert options.printable("a\nb\t\U0001f600ä\ud800\x1b[1m") == r"a\nb\t😀ä\ud800\x1b[1m"


def test_containers_by_name_or_url():
    assert options.swift_url("c/p") == options.swift_url("swift://c/p") == "swift://c/p"
