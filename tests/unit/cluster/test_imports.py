import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module", ["swift_hapi.cluster", "swift_hapi.cluster.supervisor", "hapi_compute.cli.cluster"]
)
def test_no_server_code_is_imported(module):
    code = (
        f"import sys, {module}\n"
        "heavy = {'swift', 'eventlet', 'torch', 'numpy', 'requests'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ports_are_distinct():
    from swift_hapi.cluster.ports import free_ports

    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(1024 <= port < 65536 for port in ports)


def test_missing_memcached_names_its_package(monkeypatch, tmp_path):
    from swift_hapi.cluster import ClusterConfig, ClusterError, EmbeddedCluster, blueprint

    monkeypatch.setattr(blueprint.shutil, "which", lambda *_args, **_kwargs: None)
    with pytest.raises(ClusterError, match="apt-get install memcached"):
        EmbeddedCluster(ClusterConfig(dir=tmp_path, hapi=False)).start()
