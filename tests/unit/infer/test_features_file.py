from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from hapi_compute.data.errors import DatasetError
from hapi_compute.infer.features_file import FeaturesFile, check_free, finished, read_keys

ABOUT = {"model": "m", "classes": ["cät", "dog"], "dataset": {"digest": "d"}}
SHAPE = (3, 2)
#: of one sample's file; of the others nothing is known
NAMES = {"k1/\U0001f600 0\n": "k1/\U0001f600 0.\n.JPG"}


def shards():
    random = np.random.default_rng(0)
    for number, count in enumerate((4, 1, 0, 5)):
        keys = [f"k{number}/\U0001f600 {i}\n" for i in range(count)]
        rows = random.normal(size=(count, *SHAPE)).astype(np.float32)
        yield f"s{number}", rows, keys, [i % 3 - 1 for i in range(count)]


def write(path, only=None, **options):
    with FeaturesFile(path, ABOUT, SHAPE, **options) as out:
        for shard in list(shards())[len(out.shards) : only]:
            out.append(*shard)
        if only is None:
            out.finish(NAMES.get)
        return out


@pytest.fixture(params=["f.npy", "f.safetensors"])
def path(request, tmp_path):
    return tmp_path / "deep" / request.param


def check(path):
    rows = np.concatenate([each[1] for each in shards()])
    keys = [key for each in shards() for key in each[2]]
    labels = [label for each in shards() for label in each[3]]
    if path.suffix == ".npy":
        loaded = np.load(path, allow_pickle=False)
        document = json.loads(path.with_suffix(".json").read_text())
        assert (document["keys"], document["labels"]) == (keys, labels)
        assert document["names"] == [NAMES.get(key) for key in keys]
        assert document["shape"] == [10, *SHAPE] and document["model"] == "m"
        assert np.load(path, mmap_mode="r").shape == (10, *SHAPE)
    else:
        tensors = load_file(path)
        loaded = tensors["features"]
        assert read_keys(tensors) == keys and tensors["label"].tolist() == labels
        assert read_keys(tensors, "name") == [NAMES.get(key, "") for key in keys]
    np.testing.assert_array_equal(loaded, rows)
    expected = {path.name} | ({"f.json"} if path.suffix == ".npy" else set())
    assert {each.name for each in path.parent.iterdir()} == expected


def test_whole(path):
    write(path)
    check(path)
    assert finished(path, ABOUT) == 10
    assert finished(path, ABOUT | {"model": "other"}) is None
    assert finished(path.with_name("g" + path.suffix), ABOUT) is None


def test_a_kill_at_the_very_end(path, monkeypatch):
    """What an earlier run has left is not taken for the result of one that was killed."""
    other = ABOUT | {"model": "other"}
    with FeaturesFile(path, other, SHAPE) as out:
        out.finish(NAMES.get)

    def killed(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hapi_compute.infer.features_file.os.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write(path)
    assert finished(path, ABOUT) is None
    with FeaturesFile(path, ABOUT, SHAPE) as out:
        assert len(out.shards) == 4
        out.finish(NAMES.get)
    check(path)


@pytest.mark.parametrize("only", [0, 1, 3, 4])
def test_going_on_gives_the_same_bytes(path, only):
    write(path)
    whole = path.read_bytes()
    path.unlink()
    write(path, only)
    assert not path.exists()
    out = write(path)
    assert path.read_bytes() == whole and len(out.shards) == 4
    check(path)


@pytest.mark.parametrize("cut", [1, 7, 60])
@pytest.mark.parametrize("which", ["journal", "partial"])
def test_what_a_kill_left_half_is_done_again(path, which, cut):
    write(path)
    whole = path.read_bytes()
    path.unlink()
    write(path, 4)
    file = path.with_name(f"{path.name}.{which}")
    file.write_bytes(file.read_bytes()[:-cut])
    with FeaturesFile(path, ABOUT, SHAPE) as out:
        assert out.shards[:2] == ["s0", "s1"] and len(out.shards) < 4
    write(path)
    assert path.read_bytes() == whole


def test_damaged_rows_are_done_again(path):
    write(path, 4)
    partial = path.with_name(f"{path.name}.partial")
    content = bytearray(partial.read_bytes())
    content[-3] ^= 1
    partial.write_bytes(content)
    with FeaturesFile(path, ABOUT, SHAPE) as out:
        assert out.shards == ["s0", "s1", "s2"]
    write(path)
    check(path)


def test_another_run_is_refused(path):
    write(path, 2)
    with pytest.raises(DatasetError, match="another run.*--restart"):
        FeaturesFile(path, ABOUT | {"model": "n"}, SHAPE)
    with FeaturesFile(path, ABOUT | {"model": "n"}, SHAPE, restart=True) as out:
        assert out.shards == []


def test_one_writer_at_a_time(path):
    with FeaturesFile(path, ABOUT, SHAPE):
        with pytest.raises(DatasetError, match="another process"):
            FeaturesFile(path, ABOUT, SHAPE)
    write(path)
    check(path)


def test_nothing_at_all(path):
    with FeaturesFile(path, ABOUT, SHAPE) as out:
        out.finish(NAMES.get)
    assert finished(path, ABOUT) == 0


def test_a_place_is_looked_at_before_the_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "null.npy").symlink_to("/dev/null")
    for out, why in (
        ("null.npy", "is no regular file"),
        ("/proc/x.npy", "cannot be written"),
        ("deep.npy/", "is a directory"),
    ):
        with pytest.raises(ValueError, match=f"out.*{why}"):
            check_free(out)
    check_free("new/f.npy")
    with FeaturesFile(tmp_path / "f.npy", ABOUT, SHAPE):
        with pytest.raises(ValueError, match="out='f.npy': another process is writing it"):
            check_free("f.npy")
    check_free("f.npy")  # What a killed run has left is gone on with.


def test_a_link_to_a_file_elsewhere_stays(path, tmp_path):
    path.parent.mkdir()
    (tmp_path / "elsewhere").mkdir()
    path.symlink_to(tmp_path / "elsewhere" / "data")
    write(path, only=2)
    assert finished(path, ABOUT) is None
    write(path)
    assert path.is_symlink() and finished(path, ABOUT) == 10
    assert [each.name for each in (tmp_path / "elsewhere").iterdir()] == ["data"]
    check(path)
