from __future__ import annotations

import argparse

import pytest

from hapi_compute.cli import messages


def test_one_and_many():
    found = [messages.count(n, "sample") for n in (0, 1, 2)]
    assert found == ["0 samples", "1 sample", "2 samples"]
    assert [messages.classes(n) for n in (1, 2)] == ["1 class", "2 classes"]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (481, "481 B"), (999, "999 B"), (1000, "1.0 kB"), (10_240, "10.2 kB"),
     (999_949, "999.9 kB"), (999_960, "1.0 MB"), (3_800_000, "3.8 MB"), (2e12, "2000.0 GB")],
)  # fmt: skip
def test_no_bytes_are_rounded_to_nothing(number, text):
    assert messages.size(number) == text


def test_options_are_spelled_where_they_are_meant():
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--out", dest="target")
    parser.add_argument("--batch-size")
    for text, spelled in (
        ("batch_size=0: want 1", "--batch-size=0: want 1"),
        ("out='x': no", "--out='x': no"),
        ("out needs batch_size, or so", "--out needs --batch-size, or so"),
        ("x: of a run with another batch_size: 1", "x: of a run with another --batch-size: 1"),
        ("it needs help", "it needs help"),
        ("c/out=1/x: batch_size", "c/out=1/x: batch_size"),
    ):
        assert messages.spelled(text, parser) == spelled


def test_files_come_first_and_only_once():
    parser = argparse.ArgumentParser()
    error = FileNotFoundError(2, "No such file or directory", "a b")
    assert messages.explained(error, parser) == "a b: no such file or directory"
    assert messages.explained(OSError("a text"), parser) == "a text"
