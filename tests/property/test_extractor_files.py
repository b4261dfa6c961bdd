"""Whatever an extractor file holds: it is loaded and runs, or it is refused with a typed error."""

from __future__ import annotations

import functools
import json
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.building import pack, unpack, with_header
from benchmarks.corpus import corpus
from benchmarks.fuzz_worker import _try
from benchmarks.hostile import HOSTILE
from benchmarks.mutations import CHANGES

GOOD = ("loaded", "refused")
#: what a JSON value in a file may be replaced by
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="session", autouse=True)
def _few_threads():
    torch.set_num_threads(1)


@functools.cache
def good() -> tuple[bytes, ...]:
    return tuple(corpus())


def check(data: bytes) -> None:
    verdict, words = _try(data)
    assert verdict in GOOD, words


def test_the_corpus_is_good():
    for data in good():
        assert _try(data) == ("loaded", "")


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(CHANGES)), st.integers(0, 2**32), st.integers(0, 4))
def test_changed_files(kind, seed, which):
    check(CHANGES[kind](random.Random(seed), good()[which]))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(set(HOSTILE) - {"many_nodes", "wide_json"})),  # slow to write
    st.integers(0, 2**32),
)
def test_hostile_files(kind, seed):
    check(HOSTILE[kind](random.Random(seed)))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 4), st.data())
def test_any_value_anywhere(which, data):
    """Replace one value of the document by any JSON value."""
    header, document, rest = unpack(good()[which])
    at: object = document
    while True:
        keys = sorted(at) if isinstance(at, dict) else range(len(at))
        key = data.draw(st.sampled_from(list(keys)))
        inner = at[key]
        if isinstance(inner, (dict, list)) and inner and data.draw(st.booleans()):
            at = inner
            continue
        at[key] = data.draw(VALUES)
        break
    check(pack(header, document, rest))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.binary(max_size=300))
def test_any_bytes(data):
    check(data)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(VALUES)
def test_any_header(value):
    check(with_header(json.dumps(value).encode()))
