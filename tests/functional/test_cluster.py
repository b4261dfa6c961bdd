"""The embedded cluster is a real Swift, and leaves nothing behind however it ends."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from swift_hapi.cluster import (
    ClusterConfig,
    ClusterError,
    ClusterInfo,
    EmbeddedCluster,
    embedded,
    find,
    probe,
)
from swift_hapi.cluster import state as state_json
from tests.functional.support import (
    log_in,
    processes_naming,
    running,
    take_interrupts,
    wait_until,
)

TRANSIENT = ("run", "engine", "state.json")
KEPT = [".hapi-cluster", ".lock", "etc", "logs"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A Swift without us: three replicas on four devices."""
    config = ClusterConfig(
        dir=tmp_path_factory.mktemp("plain"), replicas=3, object_devices=4, hapi=False
    )
    with EmbeddedCluster(config) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def owner(plain):
    return log_in(plain, "test:tester")


def hapi(*words, check=True) -> subprocess.CompletedProcess:
    argv = [sys.executable, "-m", "hapi_compute.cli.main", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=check)


def data_directory(directory: Path) -> Path:
    """Where the cluster in ``directory`` keeps its device data."""
    transient = json.loads((directory / "state.json").read_text())["transient"]
    return Path(transient[-1])


def swift_info(cluster: EmbeddedCluster | ClusterInfo) -> dict:
    return requests.get(cluster.auth_url.replace("/auth/v1.0", "/info")).json()


def assert_nothing_left(directory: Path, pids: dict[str, int], data: Path) -> None:
    for name, pid in pids.items():
        wait_until(lambda pid=pid: not running(pid), f"the end of {name}")
    wait_until(lambda: not processes_naming(f"{directory}/"), "the end of all servers")
    wait_until(lambda: not data.exists(), "the removal of device data")
    for name in TRANSIENT:
        wait_until(lambda name=name: not os.path.lexists(directory / name), f"no {name}")


def test_objects_lie_on_as_many_devices_as_there_are_replicas(plain, owner):
    owner.put("replicas")
    data = os.urandom(100_000)
    owner.put("replicas", "o", data=data)
    assert owner.session.get(owner.url("replicas", "o")).content == data
    files = [
        path
        for path in data_directory(plain.dir).glob("devices/d*/objects/**/*.data")
        if path.read_bytes() == data
    ]
    assert len({path.relative_to(data_directory(plain.dir)).parts[1] for path in files}) == 3


def test_listing_shows_an_object_at_once(owner):
    owner.put("listing")
    owner.put("listing", "o", data=b"x")
    listing = owner.session.get(owner.url("listing"), params={"format": "json"}).json()
    assert [(entry["name"], entry["bytes"]) for entry in listing] == [("o", 1)]


def test_static_large_object_is_assembled(owner):
    owner.put("slo")
    parts = [b"a" * 1000, b"b" * 500]
    for number, part in enumerate(parts):
        owner.put("slo", f"part{number}", data=part)
    manifest = [{"path": f"/slo/part{number}"} for number in range(len(parts))]
    url = owner.url("slo", "whole") + "?multipart-manifest=put"
    owner.session.put(url, data=json.dumps(manifest)).raise_for_status()
    answer = owner.session.get(owner.url("slo", "whole"))
    assert answer.content == b"".join(parts)
    assert answer.headers["X-Static-Large-Object"] == "True"


def test_user_without_groups_reads_only_what_an_acl_allows(plain, owner):
    other = log_in(plain, "test:tester3")
    owner.put("acl")
    owner.put("acl", "o", data=b"secret")
    assert other.session.get(owner.url("acl", "o")).status_code == 403
    owner.put("acl", X_Container_Read="test:tester3")
    assert other.session.get(owner.url("acl", "o")).content == b"secret"


def test_second_account_is_apart(plain, owner):
    other = log_in(plain, "test2:tester2")
    assert other.storage_url != owner.storage_url
    owner.put("mine")
    assert other.session.get(owner.url("mine")).status_code == 403
    other.put("mine")


def test_wrong_key_and_wrong_token_are_refused(plain, owner):
    headers = {"X-Auth-User": "test:tester", "X-Auth-Key": "wrong"}
    assert requests.get(plain.auth_url, headers=headers).status_code == 401
    assert requests.get(owner.storage_url, headers={"X-Auth-Token": "x"}).status_code == 401


def test_temporary_url_opens_one_object(owner):
    owner.put("temp")
    owner.put("temp", "o", data=b"for you")
    key = "temporary"
    owner.session.post(
        owner.storage_url, headers={"X-Account-Meta-Temp-URL-Key": key}
    ).raise_for_status()
    url, expires = owner.url("temp", "o"), int(time.time()) + 600
    text = f"GET\n{expires}\n{urlsplit(url).path}"
    signature = hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
    query = {"temp_url_sig": signature, "temp_url_expires": expires}
    assert requests.get(url, params=query).content == b"for you"
    assert requests.get(url, params=query | {"temp_url_expires": expires + 1}).status_code == 401


def test_files_of_a_cluster_are_private_and_logged(plain, owner):
    for name in ("etc", "logs", "run"):
        assert (plain.dir / name).stat().st_mode & 0o077 == 0
    assert data_directory(plain.dir).stat().st_mode & 0o077 == 0
    assert (plain.dir / "state.json").stat().st_mode & 0o077 == 0
    owner.session.get(owner.url("no-such-container"))
    assert "no-such-container" in (plain.dir / "logs" / "proxy.log").read_text()


def test_encrypted_objects_and_a_short_listing(tmp_path):
    config = ClusterConfig(dir=tmp_path, hapi=False, encryption=True, listing_limit=2)
    with EmbeddedCluster(config) as cluster:
        data = data_directory(tmp_path)
        user = log_in(cluster, cluster.user)
        plaintext = b"do not read me " * 100
        user.put("c")
        for name in "abc":
            user.put("c", name, data=plaintext)
        assert user.session.get(user.url("c", "a")).content == plaintext
        stored = [path.read_bytes() for path in data.glob("devices/d*/objects/**/*.data")]
        assert len(stored) == 3
        assert not any(b"do not read me" in content for content in stored)
        assert user.session.get(user.url("c")).text.split() == ["a", "b"]


def test_stop_leaves_logs_and_nothing_else(tmp_path):
    cluster = EmbeddedCluster(ClusterConfig(dir=tmp_path, hapi=False)).start()
    pids, data = cluster.pids, data_directory(tmp_path)
    assert set(pids) == {"supervisor", "memcached", "account", "container", "object1", "proxy"}
    assert all(running(pid) for pid in pids.values())
    cluster.stop()
    # Not waited for: stop() returns when all is done.
    assert not [name for name, pid in pids.items() if running(pid)]
    assert not data.exists()
    assert cluster.pids == {}
    assert cluster.status() is None
    assert sorted(path.name for path in tmp_path.iterdir()) == KEPT
    cluster.stop()


CALLER = """
import json, sys
from swift_hapi.cluster import ClusterConfig, EmbeddedCluster
with EmbeddedCluster(ClusterConfig(dir=sys.argv[1], hapi=False)) as cluster:
    print(json.dumps(cluster.pids), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_cluster_ends_with_its_caller(tmp_path, signum):
    argv = [sys.executable, "-c", CALLER, str(tmp_path)]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=take_interrupts,
    ) as caller:
        pids = json.loads(caller.stdout.readline())
        data = data_directory(tmp_path)
        assert all(running(pid) for pid in pids.values())
        caller.send_signal(signum)
        caller.wait()
    assert_nothing_left(tmp_path, pids, data)


def test_data_of_a_killed_cluster_is_removed_by_a_start_elsewhere(tmp_path):
    killed = EmbeddedCluster(ClusterConfig(dir=tmp_path / "killed", hapi=False)).start()
    supervisor, data = killed.pids["supervisor"], data_directory(tmp_path / "killed")
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not running(supervisor), "the end of the supervisor")
    assert data.exists()
    with EmbeddedCluster(ClusterConfig(dir=tmp_path / "other", hapi=False)):
        # On a machine without room in /dev/shm it lies in the cluster's own directory.
        assert data.exists() is (data.parent != Path("/dev/shm"))
        assert data_directory(tmp_path / "other").exists()
    killed.stop()
    assert not data.exists()


def test_servers_end_with_their_supervisor_and_the_next_start_cleans_up(tmp_path):
    cluster = EmbeddedCluster(ClusterConfig(dir=tmp_path, hapi=False)).start()
    pids, data = cluster.pids, data_directory(tmp_path)
    os.kill(pids["supervisor"], signal.SIGKILL)
    for name, pid in pids.items():
        wait_until(lambda pid=pid: not running(pid), f"the end of {name}")
    assert data.exists()
    assert find(tmp_path) is None
    with EmbeddedCluster(ClusterConfig(dir=tmp_path, hapi=False)) as successor:
        assert not data.exists()
        assert set(successor.pids) == set(pids)
    cluster.stop()


@pytest.mark.parametrize("victim", ["supervisor", "proxy"])
def test_workers_of_the_proxy_end_with_it(tmp_path, victim):
    config = ClusterConfig(dir=tmp_path, hapi=False, workers=2, proxy_host="127.0.0.2")
    with EmbeddedCluster(config) as cluster:
        assert urlsplit(cluster.storage_url).hostname == "127.0.0.2"
        pids = cluster.pids
        workers = processes_naming(f"{tmp_path}/etc/proxy.conf")
        assert len(workers) == 3
        os.kill(pids[victim], signal.SIGKILL)
        for pid in workers:
            wait_until(lambda pid=pid: not running(pid), "the end of a worker")


def test_two_clusters_cannot_share_a_directory(plain):
    with pytest.raises(ClusterError, match="already"):
        EmbeddedCluster(plain.config).start()
    assert find(plain.dir) is not None


def test_a_directory_of_somebody_else_loses_nothing(tmp_path):
    names = ("run/a", "engine/models/b", "etc/c", "logs/d.log", "state.json")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("precious")
    done = hapi("cluster", "up", "--dir", tmp_path, "--no-hapi", check=False)
    assert done.returncode == 2
    assert f"{tmp_path}: is not empty and was not made by a cluster" in done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(tmp_path)) for path in files) == sorted(names)


def test_failed_server_is_named_with_the_end_of_its_log(tmp_path):
    config = ClusterConfig(dir=tmp_path, hapi=False, proxy_conf=(("sorting_method", "nonsense"),))
    with pytest.raises(ClusterError, match=r"(?s)^proxy ended .*nonsense"):
        EmbeddedCluster(config).start()
    assert sorted(path.name for path in tmp_path.iterdir()) == KEPT


def test_taken_port_is_given_up_for_another(tmp_path, monkeypatch):
    choices = []

    def free_ports(count):
        ports = real(count)
        choices.append(ports)
        if len(choices) == 1:
            ports[-1] = taken.getsockname()[1]
        return ports

    real = embedded.free_ports
    monkeypatch.setattr(embedded, "free_ports", free_ports)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with EmbeddedCluster(ClusterConfig(dir=tmp_path, hapi=False)) as cluster:
            assert find(tmp_path) is not None
            assert len(cluster.pids) == 6
    assert len(choices) == 2


def test_up_status_down(tmp_path):
    directory, file = tmp_path / "c", tmp_path / "c.json"
    up = ("cluster", "up", "--dir", directory, "--json", file, "--no-hapi", "--devices", 2)
    try:
        said = hapi(*up).stdout
        info = json.loads(file.read_text())
        assert set(info) == {
            *("auth_url", "user", "key", "storage_url", "token", "dir", "engine_socket", "pids")
        }
        assert said.splitlines() == [
            f"export ST_AUTH={info['auth_url']}",
            f"export ST_USER={info['user']}",
            f"export ST_KEY={info['key']}",
        ]
        assert info["engine_socket"] is None
        assert {"object1", "object2"} <= set(info["pids"])
        answer = requests.get(info["storage_url"], headers={"X-Auth-Token": info["token"]})
        assert answer.status_code in (200, 204)

        again = hapi(*up)
        assert "already" in again.stderr
        assert json.loads(file.read_text())["pids"] == info["pids"]

        status = tmp_path / "status.json"
        assert "proxy" in hapi("cluster", "status", "--dir", directory, "--json", status).stdout
        report = json.loads(status.read_text())
        assert report["ready"]
        assert report["servers"]["proxy"] == {
            "pid": info["pids"]["proxy"],
            "restarts": 0,
            "exit_code": None,
        }
        data = data_directory(directory)
    finally:
        hapi("cluster", "down", "--dir", directory)
    assert not [name for name, pid in info["pids"].items() if running(pid)]
    assert_nothing_left(directory, info["pids"], data)
    assert "not running" in hapi("cluster", "down", "--dir", directory).stderr
    assert hapi("cluster", "status", "--dir", directory, check=False).returncode == 1


def test_up_that_is_interrupted_leaves_nothing(tmp_path):
    argv = [sys.executable, "-m", "hapi_compute.cli.main", "cluster", "up", "--no-hapi"]
    argv += ["--dir", str(tmp_path)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, preexec_fn=take_interrupts) as command:
        wait_until((tmp_path / "state.json").exists, "the supervisor")
        state = state_json.read(tmp_path / "state.json")
        data = data_directory(tmp_path)
        command.send_signal(signal.SIGINT)
        command.communicate()
    assert command.returncode == 130
    assert_nothing_left(tmp_path, state.pids(), data)


def test_up_cleans_up_after_a_cluster_that_was_killed(tmp_path):
    up = ("cluster", "up", "--dir", tmp_path, "--no-hapi", "--json", tmp_path / "c.json")
    hapi(*up)
    data = data_directory(tmp_path)
    first = json.loads((tmp_path / "c.json").read_text())["pids"]
    os.kill(first["supervisor"], signal.SIGKILL)
    wait_until(lambda: not running(first["supervisor"]), "the end of the supervisor")
    try:
        assert "already" not in hapi(*up).stderr
        assert not data.exists()
        assert json.loads((tmp_path / "c.json").read_text())["pids"] != first
    finally:
        hapi("cluster", "down", "--dir", tmp_path)


def test_filter_is_in_the_pipeline_unless_left_out(cluster, plain):
    assert "swift_hapi" in swift_info(cluster)
    assert "swift_hapi" not in swift_info(plain)
    assert plain.engine_socket is None
    assert "engine" not in plain.pids


def test_engine_that_is_killed_comes_back_and_plain_requests_do_not_notice(tmp_path):
    with EmbeddedCluster(ClusterConfig(dir=tmp_path)) as cluster:
        user = log_in(cluster, cluster.user)
        user.put("c")
        user.put("c", "o", data=b"plain")
        before = cluster.pids
        os.kill(before["engine"], signal.SIGKILL)
        assert user.session.get(user.url("c", "o")).content == b"plain"
        wait_until(lambda: cluster.status().servers["engine"].restarts == 1, "a restart")
        wait_until(lambda: probe.engine_ready(Path(cluster.engine_socket)), "a ready engine")
        after = cluster.pids
        engine = cluster.status().servers["engine"]
        assert engine.exit_code == -signal.SIGKILL
        assert after.pop("engine") != before.pop("engine")
        assert after == before
        assert "engine: ended (-9)" in (tmp_path / "logs" / "supervisor.log").read_text()


def test_options_reach_filter_and_engine(tmp_path):
    up = ("cluster", "up", "--dir", tmp_path / "c", "--json", tmp_path / "c.json")
    filter_conf = ("--filter-conf", "allow_anonymous=true", "--filter-conf", "model_container=m")
    try:
        hapi(*up, *filter_conf, "--engine-conf", "log_level = DEBUG")
        info = json.loads((tmp_path / "c.json").read_text())
        assert stat.S_ISSOCK(os.stat(info["engine_socket"]).st_mode)
        assert info["pids"]["engine"]
        published = swift_info(find(tmp_path / "c"))["swift_hapi"]
        assert (published["allow_anonymous"], published["model_container"]) == (True, "m")
        assert "log_level = DEBUG" in (tmp_path / "c" / "etc" / "engine.conf").read_text()
    finally:
        hapi("cluster", "down", "--dir", tmp_path / "c")


def test_unknown_engine_option_fails_the_start_with_its_name(tmp_path):
    config = ClusterConfig(dir=tmp_path, engine_conf=(("no_such_option", "1"),))
    with pytest.raises(ClusterError, match=r"(?s)^engine ended .*no_such_option"):
        EmbeddedCluster(config).start()
    assert not (tmp_path / "state.json").exists()


def test_usage_errors_name_the_option(tmp_path):
    done = hapi("cluster", "up", "--dir", tmp_path, "--replicas", 3, "--devices", 2, check=False)
    assert done.returncode == 2
    assert "replicas=3" in done.stderr
    done = hapi("cluster", "up", "--dir", tmp_path, "--filter-conf", "nonsense", check=False)
    assert done.returncode == 2
    assert "KEY=VALUE" in done.stderr
