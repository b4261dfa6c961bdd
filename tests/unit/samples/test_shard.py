import pytest

from swift_hapi.protocol.errors import SampleRangeError, TooLarge, UnsupportedFormat
from swift_hapi.protocol.headers import SampleRange
from swift_hapi.protocol.limits import Limits
from swift_hapi.samples.shard import read_shard
from tests.unit.samples.builders import encode, picture, tar

JPEG = encode(picture(8, 8))
LIMITS = Limits()


def test_single_image_is_a_shard_of_one_keyed_by_its_name():
    contents = read_shard(JPEG, "cats/tom.jpg", LIMITS)
    assert contents.total == 1
    (only,) = contents.samples
    assert (only.index, only.key, only.label, only.kind) == (0, "cats/tom.jpg", -1, "image")
    assert bytes(only.data) == JPEG


def test_webdataset_tar():
    data = tar(
        {
            "./a/0001.jpg": JPEG,
            "./a/0001.cls": b"7\n",
            "a/0002.PNG": b"p",
            "notes.txt": b"not a sample",
            "a/0003.x.jpg": b"extension is x.jpg",
            "a/._0001.jpg": b"hidden",
            "a/0004.npy": b"n",
            "a/0004.cls": b"0",
        }
    )
    contents = read_shard(data, "s.tar", LIMITS)
    found = [(s.index, s.key, s.label, s.kind) for s in contents.samples]
    assert found == [
        (0, "a/0001", 7, "image"),
        (1, "a/0002", -1, "image"),
        (2, "a/0004", 0, "tensor"),
    ]


def test_range_is_inclusive_and_checked():
    data = tar({f"{i}.jpg": bytes([i]) for i in range(5)})
    contents = read_shard(data, "s.tar", LIMITS, SampleRange(1, 3))
    assert [s.index for s in contents.samples] == [1, 2, 3]
    assert contents.total == 5
    with pytest.raises(SampleRangeError, match=r"s\.tar"):
        read_shard(data, "s.tar", LIMITS, SampleRange(3, 5))


@pytest.mark.parametrize("text", [b"cat", b"-1", b"", b"9" * 30, b"1 2"])
def test_bad_label_is_the_samples_error_not_the_shards(text):
    data = tar({"a.jpg": JPEG, "a.cls": text, "b.jpg": JPEG, "b.cls": b"1"})
    bad, good = read_shard(data, "s.tar", LIMITS).samples
    assert "cls" in bad.error and good.error is None


def test_doubled_key_is_an_error_of_that_sample():
    data = tar([("a.jpg", JPEG), ("b.jpg", JPEG), ("a.jpg", JPEG)])
    errors = {s.key: s.error for s in read_shard(data, "s.tar", LIMITS).samples}
    assert "twice" in errors["a"] and errors["b"] is None


@pytest.mark.parametrize("data", [b"", b"hello", b"\0" * 4096, b"\x1f\x8b" + b"x" * 600])
def test_other_bytes_are_refused_by_name(data):
    with pytest.raises(UnsupportedFormat, match=r"thing\.bin"):
        read_shard(data, "thing.bin", LIMITS)


def test_truncated_tar_is_refused():
    data = tar({"a.jpg": b"x" * 3000})
    with pytest.raises(UnsupportedFormat, match="cut short"):
        read_shard(data[:2000], "s.tar", LIMITS)


def test_too_many_samples():
    data = tar({f"{i}.jpg": b"x" for i in range(5)})
    with pytest.raises(TooLarge, match="4 samples"):
        read_shard(data, "s.tar", Limits(max_samples=4))


@pytest.mark.parametrize(
    ("document", "label"),
    [
        (b'{"label": 3}', 3), (b'{"label": 0, "caption": "x"}', 0), (b'{"label": "cat"}', -1),
        (b'{"label": true}', -1), (b'{"label": -4}', -1), (b'{"label": 1.5}', -1), (b"{}", -1),
        (b"[1]", -1), (b"7", -1), (b"", -1), (b"\xff", -1), (b"[" * 9000, -1),
        (b'{"label": 1' + b"0" * 30 + b"}", -1), (b'{"label": 3}' + b" " * 20_000, -1),
    ],
)  # fmt: skip
def test_labels_in_json(document, label):
    contents = read_shard(tar({"a.jpg": JPEG, "a.json": document}), "s.tar", LIMITS)
    assert [(s.label, s.error) for s in contents.samples] == [(label, None)]


def test_cls_goes_before_json():
    data = tar({"a.json": b'{"label": 3}', "a.jpg": JPEG, "a.cls": b"5"})
    assert read_shard(data, "s.tar", LIMITS).samples[0].label == 5
