from __future__ import annotations

import hashlib
import io
import re
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapi_compute.data.keys import legal_key
from hapi_compute.data.packing import build_tar, pack, packed_size, shuffled
from swift_hapi.protocol.limits import Limits
from swift_hapi.samples.shard import read_shard


def test_shuffling_is_a_function_of_the_seed():
    assert sorted(shuffled(20, 1)) == list(range(20))
    assert shuffled(20, 1) == shuffled(20, 1) != shuffled(20, 2)


@given(
    st.lists(st.integers(0, 200_000), max_size=80),
    st.integers(1, 20),
    st.integers(1 << 16, 1 << 20),
)
def test_packing_keeps_everything_in_order_within_the_limits(sizes, most, room):
    shards = pack([packed_size(size) for size in sizes], most, room)
    assert [p for shard in shards for p in shard] == list(range(len(sizes)))
    for shard in shards:
        assert 1 <= len(shard) <= most
        if len(shard) > 1:
            assert sum(packed_size(sizes[p]) for p in shard) + 10752 <= room


KEYS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0."), min_size=1, max_size=30
).map(lambda text: text * (len(text) % 9 + 1))


@given(st.lists(st.tuples(st.integers(0, 5000), KEYS), min_size=1, max_size=12))
def test_no_tar_is_larger_than_promised(samples):
    tar = build_tar((f"{i}{key}", "jpg", 0, bytes(size)) for i, (size, key) in enumerate(samples))
    needs = [packed_size(size, f"{i}{key}", "jpg") for i, (size, key) in enumerate(samples)]
    assert len(tar) <= sum(needs) + 10752


#: (.*/|) and the rest of base name and extensions, as WebDataset has it
WEBDATASET = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$", re.DOTALL)


@pytest.mark.parametrize(
    "name",
    ["a b", "émoji 😀", "v1.0 ü/x.y", "z" * 250, "100% sure?", "k/" * 60 + "x", "../../etc/x",
     ".h", "/abs/x", "a\nb", "./x", "a//b", "bad \udce9", "nul\0", "-dash", "back\\slash"],
)  # fmt: skip
def test_any_name_is_read_back_by_everybody(name):
    key = legal_key(name)
    if not set("\0\udce9") & set(name) and ".." not in name and "." not in name.rpartition("/")[2]:
        assert key == name.removeprefix("/").removeprefix("./").replace("//", "/")
    tar = build_tar([(key, "jpg", 3, b"\xff\xd8\xffx")])
    (sample,) = read_shard(tar, "x.tar", Limits()).samples
    assert (sample.key, sample.label, bytes(sample.data)) == (key, 3, b"\xff\xd8\xffx")
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        found = [WEBDATASET.match(member.name).groups() for member in archive]
    assert found == [(key, "cls"), (key, "jpg")]
    assert not key.startswith(("/", "../")) and "/../" not in key


def test_tars_with_long_names_are_the_same_everywhere():
    tar = build_tar([("ü 😀/1", "jpg", 3, b"one"), ("z" * 200, "png", 11, b"two")])
    assert hashlib.md5(tar).hexdigest() == "27ca1f37f9b0b3279bb9d57fbf8ecbe5"


def test_tars_are_the_same_everywhere():
    samples = [("cat/1", "jpg", 3, b"one"), ("dog/2", "png", 11, b"two")]
    tar = build_tar(samples)
    assert tar == build_tar(samples)
    # Pinned: other bytes would make every upload start anew.
    assert hashlib.md5(tar).hexdigest() == "9eefea91df6050f8b010ffd1afe635b1"


def test_tars_are_webdataset():
    tar = build_tar([("cat/1", "jpg", 3, b"\xff\xd8\xffone"), ("dog/2", "png", 11, b"two")])
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        members = archive.getmembers()
    assert [m.name for m in members] == ["cat/1.cls", "cat/1.jpg", "dog/2.cls", "dog/2.png"]
    assert all((m.mtime, m.uid, m.gid, m.uname) == (0, 0, 0, "") for m in members)
    contents = read_shard(tar, "x.tar", Limits())
    assert [(s.key, s.label) for s in contents.samples] == [("cat/1", 3), ("dog/2", 11)]
    assert bytes(contents.samples[1].data) == b"two"
