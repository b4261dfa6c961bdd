"""Options: the sample says what the code reads, and bad values are named."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from pathlib import Path

import pytest

from swift_hapi.engine.budget import MemoryBudget
from swift_hapi.engine.config import Cpus, EngineConfig, parse_config, read_config
from swift_hapi.protocol.limits import Limits

SAMPLE = Path(__file__).parents[3] / "etc" / "hapi-engine.conf-sample"


def test_sample_shows_every_option_at_its_default():
    lines = SAMPLE.read_text().splitlines()
    options = [line[2:] for line in lines if re.match(r"# [a-z_]+ =( |$)", line)]
    assert sorted(option.split(" =")[0] for option in options) == sorted(
        field.name for field in fields(EngineConfig)
    )
    assert parse_config("\n".join(["[engine]", *options])) == EngineConfig()


def test_sample_as_it_is_gives_the_defaults():
    assert read_config(SAMPLE) == EngineConfig()


def test_default_limits_are_the_protocols():
    assert EngineConfig().limits == Limits()


@pytest.mark.parametrize(
    "text, option, value",
    [
        ("1048576", "memory_budget", MemoryBudget(nbytes=1 << 20)),
        ("3 KiB", "memory_budget", MemoryBudget(nbytes=3 << 10)),
        ("12.5%", "memory_budget", MemoryBudget(share=0.125)),
        ("5", "engine_cpus", Cpus(count=5)),
        ("cpus:3,0-1", "engine_cpus", Cpus(ids=(0, 1, 3))),
        ("0", "batch_wait", 0.0),
        ("on", "fixed_batch", True),
        ("auto", "device", "auto"),
        ("2GiB", "max_model_bytes", 2 << 30),
        ("0660", "socket_mode", 0o660),
        ("0.5", "admission_timeout", 0.5),
        ("debug", "log_level", "DEBUG"),
        ("/a/b", "socket", Path("/a/b")),
    ],
)
def test_values(text, option, value):
    assert getattr(parse_config(f"[engine]\n{option} = {text}"), option) == value


@pytest.mark.parametrize(
    "line",
    [
        "socket = relative.sock",
        "socket_mode = 0888",
        "socket_mode = rw",
        "socket_group = a b",
        "socket_group = 4294967295",
        "socket_group = 111111111111111111111111111111",
        "max_cache_bytes = 5 GB",
        "max_cache_bytes = -1",
        "memory_budget = 0",
        "memory_budget = 0%",
        "memory_budget = 100%",
        "memory_budget = -5%",
        "engine_cpus = -1",
        "engine_cpus = cpus:",
        "engine_cpus = cpus:3-1",
        "batch_max = 0",
        "batch_min = 40",
        "batch_time = 0",
        "fixed_batch = maybe",
        "measure_memory = often",
        "max_sample_gflops = 0",
        "workers = 0",
        "device = tpu",
        "nice = -1",
        "nice = 20",
        "account_rate = -1",
        "queue_depth = 1.5",
        "deadline = 0",
        "deadline = never",
        "deadline = nan",
        "log_level = LOUD",
        "no_such_option = 1",
    ],
)
def test_bad_values_are_named(line):
    with pytest.raises(ValueError, match=line.split(" =")[0]):
        parse_config("[engine]\n" + line)


def test_limits_follow_the_options():
    limits = parse_config("[engine]\nmax_samples = 7\nmax_pixels = 99\ndeadline = 3").limits
    assert (limits.max_samples, limits.max_pixels, limits.deadline) == (7, 99, 3.0)


def test_threads():
    assert parse_config("[engine]\nengine_cpus = 3").engine_cpus.threads == 3
    assert parse_config("[engine]\nengine_cpus = cpus:4-7").engine_cpus.threads == 4
    assert EngineConfig().engine_cpus.threads == len(os.sched_getaffinity(0))
    assert parse_config("[engine]\nengine_cpus = 3").decoders == 3
    assert parse_config("[engine]\nengine_cpus = 3\ndecode_threads = 2").decoders == 2


def test_a_small_batch_max_takes_batch_min_along():
    assert parse_config("[engine]\nbatch_max = 2").batch_min == 2
    with pytest.raises(ValueError, match="batch_min"):
        parse_config("[engine]\nbatch_max = 2\nbatch_min = 3")
