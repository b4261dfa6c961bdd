"""Where the filter may stand, tried by loading a real proxy's configuration."""

from __future__ import annotations

import base64
import configparser
import subprocess
import sys

import pytest

LOAD = """
import sys
from swift.common.utils import set_swift_dir
set_swift_dir(sys.argv[1])
from swift.common.wsgi import loadapp
loadapp(sys.argv[2])
print("loaded")
"""


@pytest.fixture
def load(cluster, tmp_path):
    """Load the cluster's proxy with another pipeline; returns (loaded, what it said)."""

    def attempt(change=list, **options: str) -> tuple[bool, str]:
        parser = configparser.RawConfigParser()
        parser.optionxform = str
        parser.read(cluster.dir / "etc" / "proxy.conf")
        pipeline = change(parser["pipeline:main"]["pipeline"].split())
        parser["pipeline:main"]["pipeline"] = " ".join(pipeline)
        parser["filter:hapi"].update(options)
        parser["filter:keymaster"] = {
            "use": "egg:swift#keymaster",
            "encryption_root_secret": base64.b64encode(b"s" * 32).decode(),
        }
        conf = tmp_path / "proxy.conf"
        with open(conf, "w") as file:
            parser.write(file)
        done = subprocess.run(
            [sys.executable, "-c", LOAD, str(cluster.dir / "etc"), str(conf)],
            capture_output=True,
            text=True,
        )
        assert (done.returncode == 0) == ("loaded" in done.stdout), done.stderr
        return done.returncode == 0, done.stdout + done.stderr

    return attempt


def moved(name: str, before: str):
    """The pipeline with ``name`` put directly before ``before``."""

    def change(pipeline: list[str]) -> list[str]:
        rest = [each for each in pipeline if each != name]
        rest.insert(rest.index(before), name)
        return rest

    return change


def test_the_documented_place(load):
    assert load()[0]


@pytest.mark.parametrize(
    ("before", "sentence"),
    [
        ("tempauth", "hapi must stand right of tempauth"),
        ("ratelimit", "hapi must stand right of ratelimit"),
        ("slo", "hapi must stand left of copy"),
        ("versioned_writes", "hapi must stand left of dlo"),
        ("proxy-server", "hapi must stand left of symlink"),
        ("catch_errors", "hapi must stand right of gatekeeper"),
    ],
)
def test_wrong_places_keep_the_proxy_from_starting(load, before, sentence):
    loaded, said = load(moved("hapi", before))
    assert not loaded
    assert sentence in said
    assert "The pipeline is: " in said


def test_filters_that_swift_inserts_left_of_us(load):
    loaded, said = load(
        lambda pipeline: [each for each in pipeline if each not in ("copy", "dlo")]
    )
    assert not loaded
    assert "hapi must stand left of copy" in said
    assert "hapi must stand left of dlo" in said


def test_keymasters_belong_right_of_us(load):
    def change(pipeline):
        pipeline.insert(pipeline.index("hapi"), "keymaster")
        return pipeline

    loaded, said = load(change)
    assert not loaded
    assert "hapi must stand left of keymaster" in said


def test_a_lenient_operator_is_only_told(load):
    assert load(moved("hapi", "slo"), strict_pipeline="false")[0]


@pytest.mark.parametrize(
    ("option", "value"),
    [("engine", "tcp:localhost"), ("deadline", "soon"), ("allow_anonymous", "maybe")],
)
def test_bad_values_keep_the_proxy_from_starting(load, option, value):
    loaded, said = load(**{option: value})
    assert not loaded
    assert f"option {option}" in said
