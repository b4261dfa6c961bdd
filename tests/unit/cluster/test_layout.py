import errno
import os

import pytest

from swift_hapi.cluster import ClusterError, layout
from swift_hapi.cluster.errors import NotOurs


def test_everything_is_made_private_and_removed(tmp_path):
    made = layout.prepare(tmp_path, None, ["d1", "d2"])
    for path in (made.etc, made.logs, made.run, made.data, made.engine / "models"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert {path.name for path in made.devices.iterdir()} == {"d1", "d2"}
    layout.remove(made.transient)
    assert {path.name for path in tmp_path.iterdir()} == {"etc", "logs"}
    assert not made.data.exists()


def test_socket_path_is_short_in_a_deep_directory(tmp_path):
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    made = layout.prepare(deep, None, ["d1"])
    assert len(os.fsencode(made.engine_socket)) <= layout.SOCKET_PATH_MAX
    assert (deep / "run").resolve() == made.run
    assert made.run.stat().st_mode & 0o077 == 0
    layout.remove(made.transient)
    assert not made.run.exists()
    assert not os.path.lexists(deep / "run")


def test_data_goes_to_the_directory_when_memory_has_no_room(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "SHM_ROOM", 1 << 62)
    assert layout.prepare(tmp_path, None, ["d1"]).data.parent == tmp_path


def test_data_goes_where_it_is_told(tmp_path):
    made = layout.prepare(tmp_path, tmp_path / "elsewhere", ["d1"])
    assert made.data.parent == tmp_path / "elsewhere"


def test_file_system_without_attributes_is_refused(tmp_path, monkeypatch):
    def setxattr(*_args):
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(os, "setxattr", setxattr)
    with pytest.raises(ClusterError, match=f"no extended attributes on .*{tmp_path}"):
        layout.prepare(tmp_path, None, ["d1"])
    assert not list(tmp_path.glob("swift-hapi-*"))


def test_last_runs_logs_are_gone(tmp_path):
    layout.remove(layout.prepare(tmp_path, None, ["d1"]).transient)
    (tmp_path / "logs" / "object9.log").touch()
    layout.remove(layout.prepare(tmp_path, None, ["d1"]).transient)
    assert not (tmp_path / "logs" / "object9.log").exists()


@pytest.mark.parametrize("name", ["etc", "engine", "run", "logs"])
def test_what_somebody_else_made_stays(tmp_path, name):
    layout.adopt(tmp_path)
    precious = tmp_path / name / "precious.log"
    precious.parent.mkdir()
    precious.touch()
    with pytest.raises(NotOurs, match=f"{name}: is not empty and was not made by a cluster"):
        layout.prepare(tmp_path, tmp_path / "data", ["d1"])
    assert precious.exists()
    assert not list(tmp_path.glob("data/*"))


def test_only_empty_directories_and_own_ones_are_adopted(tmp_path):
    (tmp_path / ".lock").touch()
    layout.adopt(tmp_path)
    assert layout.is_ours(tmp_path)
    layout.prepare(tmp_path, None, ["d1"])
    layout.adopt(tmp_path)
    other = tmp_path / "other"
    (other / "run").mkdir(parents=True)
    with pytest.raises(NotOurs, match="not empty"):
        layout.adopt(other)
    assert [path.name for path in other.iterdir()] == ["run"]
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "x"):
        with pytest.raises(NotOurs, match="is no directory"):
            layout.adopt(path)


def test_a_start_that_was_killed_anywhere_is_followed_by_another(tmp_path):
    layout.adopt(tmp_path)
    for name in ("run", "etc", "engine", "logs"):
        (tmp_path / name).mkdir()  # killed before it was marked
    first = layout.prepare(tmp_path, None, ["d1"])
    second = layout.prepare(tmp_path, None, ["d1"])  # nothing was cleaned up
    assert second.engine_socket.parent.is_dir() and first.data != second.data
    layout.remove((first.data, second.data))


def test_only_device_data_that_nobody_claims_is_swept(tmp_path):
    made = {name: tmp_path / f"swift-hapi-{name}" for name in ("used", "left", "new")}
    for path in (*made.values(), tmp_path / "else"):
        (path / "devices" / "d1").mkdir(parents=True)
    used = layout.claim(made["used"])
    os.close(layout.claim(made["left"]))
    layout.sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("swift-hapi-used", "swift-hapi-new", "else")
    }
    os.close(used)
    layout.sweep(tmp_path)
    assert not made["used"].exists()


def test_lock_is_held_by_one_until_its_last_descriptor_is_closed(tmp_path):
    first = layout.lock(tmp_path)
    copy = os.dup(first)
    assert layout.lock(tmp_path) is None
    os.close(first)
    assert layout.lock(tmp_path) is None
    os.close(copy)
    again = layout.lock(tmp_path)
    assert again is not None
    os.close(again)
