from __future__ import annotations

import hashlib
import io
import tarfile

from hypothesis import given
from hypothesis import strategies as st

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
    shards = pack(sizes, most, room)
    assert [p for shard in shards for p in shard] == list(range(len(sizes)))
    for shard in shards:
        assert 1 <= len(shard) <= most
        if len(shard) > 1:
            assert sum(packed_size(sizes[p]) for p in shard) + 10752 <= room


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=12))
def test_no_tar_is_larger_than_promised(sizes):
    tar = build_tar((f"k{i}", "jpg", 0, bytes(size)) for i, size in enumerate(sizes))
    assert len(tar) <= sum(map(packed_size, sizes)) + 10752


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
