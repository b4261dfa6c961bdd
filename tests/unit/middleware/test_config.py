"""Options: parsed, refused, and the same in code, sample and manual."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from swift_hapi.middleware import filter as filter_module
from swift_hapi.middleware.config import FilterConfig, unknown_options

ENGINE = {"engine": "unix:/run/e.sock"}
SAMPLE = Path(__file__).parents[3] / "etc" / "proxy-server.conf-sample"


def test_defaults():
    config = FilterConfig.from_conf({**ENGINE, "swift_dir": "/etc/swift", "bind_port": "8080"})
    assert config == FilterConfig("/run/e.sock")
    assert config.limits() == {
        "max_object_bytes": 268435456,
        "max_samples": 4096,
        "max_pixels": 64000000,
        "max_output_bytes": 268435456,
        "max_model_bytes": 2147483648,
        "deadline": 300.0,
        "admission_timeout": 2.0,
    }


def test_values():
    config = FilterConfig.from_conf(
        {
            **ENGINE,
            "model_container": "nets",
            "allow_anonymous": "Yes",
            "auth_cache_time": "0",
            "deadline": "12.5",
            "max_object_bytes": "1000",
            "max_model_bytes": "3 GiB",
            "max_output_bytes": "64MiB",
            "strict_pipeline": "off",
        }
    )
    assert config.model_container == "nets"
    assert config.allow_anonymous is True
    assert config.auth_cache_time == 0
    assert config.deadline == 12.5
    assert config.max_object_bytes == 1000
    assert config.max_model_bytes == 3 << 30
    assert config.max_output_bytes == 64 << 20
    assert config.strict_pipeline is False


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("engine", ""),
        ("engine", "/run/e.sock"),
        ("engine", "unix:e.sock"),
        ("engine", "unix:/" + "x" * 107),
        ("model_container", "a/b"),
        ("model_container", " "),
        ("model_container", "a\0b"),
        ("model_container", "a\nb"),
        ("allow_anonymous", "ture"),
        ("auth_cache_time", "61"),
        ("auth_cache_time", "-1"),
        ("auth_cache_time", "nan"),
        ("auth_cache_size", "0"),
        ("connect_timeout", "0"),
        ("admission_timeout", "x"),
        ("admission_timeout", "inf"),
        ("deadline", "-1"),
        ("deadline", "nan"),
        ("max_object_bytes", "1.5"),
        ("max_model_bytes", "0"),
        ("max_model_bytes", "1 MB"),
        ("max_model_bytes", "1 MiB MiB"),
        ("max_samples", "many"),
        ("strict_pipeline", ""),
    ],
)
def test_bad_values_name_the_option(option, value):
    with pytest.raises(ValueError, match=rf"hapi: option {option}\b"):
        FilterConfig.from_conf({**ENGINE, option: value})


def test_unknown_options_are_told_with_a_guess():
    told = unknown_options(
        {
            **ENGINE,
            "allow_anonymus": "true",
            "frobnicate": "1",
            "__name__": "hapi",
            "log_level": "INFO",
            "set log_name": "hapi",
        }
    )
    assert told == [
        "option allow_anonymus is unknown and ignored; did you mean allow_anonymous?",
        "option frobnicate is unknown and ignored",
    ]


def _defaults() -> dict[str, str]:
    config = FilterConfig("/run/swift-hapi/engine.sock")
    values = {f.name: getattr(config, f.name) for f in fields(config)}
    values["engine"] = f"unix:{values['engine']}"
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in values.items()}


def test_the_sample_has_every_option_at_its_default():
    section = SAMPLE.read_text().partition("[filter:hapi]")[2]
    found = re.findall(r"^(?:# )?([a-z_]+) = (.*)$", section, re.MULTILINE)
    assert dict(found) == {"use": "egg:swift-hapi#hapi", **_defaults()}
    commented = re.findall(r"^# ([a-z_]+) = ", section, re.MULTILINE)
    assert set(commented) == set(_defaults()) - {"engine"}


def test_the_manual_has_every_option_at_its_default():
    options = filter_module.__doc__.partition("Options\n---")[2]
    named = re.findall(r"^((?:``[a-z_]+``(?:, )?)+)$", options, re.MULTILINE)
    named = [re.findall(r"``([a-z_]+)``", line) for line in named]
    assert {name for names in named for name in names} == set(_defaults())
    for names in named:
        text = options.partition(", ".join(f"``{name}``" for name in names) + "\n")[2]
        text = text.partition("\n``")[0]
        for name in set(names) - {"engine"}:
            assert f"``{_defaults()[name]}``" in text, name
