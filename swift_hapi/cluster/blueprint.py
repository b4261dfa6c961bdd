"""From a configuration to files on disk and a plan for the supervisor."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

from swift_hapi.cluster import conffiles, layout
from swift_hapi.cluster.conffiles import Ports
from swift_hapi.cluster.config import ClusterConfig
from swift_hapi.cluster.errors import ClusterError
from swift_hapi.cluster.layout import Layout
from swift_hapi.cluster.plan import Plan, ServerPlan


def find_memcached() -> str:
    """Path of memcached, which is no Python package and may be missing.

    :raises ClusterError: telling how to install it
    """
    path = shutil.which("memcached") or shutil.which("memcached", path="/usr/bin:/usr/local/bin")
    if path is None:
        raise ClusterError(
            "memcached is not installed, and Swift's tempauth keeps its tokens there: "
            "`apt-get install memcached`"
        )
    return path


def device_names(config: ClusterConfig) -> list[str]:
    return [f"d{number}" for number in range(1, config.object_devices + 1)]


def object_servers(ports: Ports) -> dict[str, int]:
    """Name to port."""
    return {f"object{number}": port for number, port in enumerate(ports.objects, 1)}


def write_conf(paths: Layout, config: ClusterConfig, ports: Ports) -> None:
    """Write etc/*.conf."""
    texts = {
        "swift": conffiles.swift_conf(config),
        "proxy": conffiles.proxy_conf(paths, config, ports),
    }
    backends = {"account": ports.account, "container": ports.container} | object_servers(ports)
    for name, port in backends.items():
        kind = name.rstrip("0123456789")
        texts[name] = conffiles.backend_conf(paths, config, name, kind, port)
    if config.hapi:
        texts["engine"] = conffiles.engine_conf(paths, config)
    for name, text in texts.items():
        (paths.etc / f"{name}.conf").write_text(text)


def build_rings(paths: Layout, config: ClusterConfig, ports: Ports) -> None:
    """Write etc/*.ring.gz; accounts and containers have one copy, on the first device.

    :raises ClusterError: with what the builder said
    """
    rings = [
        {
            "path": str(paths.etc / f"{kind}.ring.gz"),
            "replicas": replicas,
            "devices": [
                {"name": name, "port": port}
                for name, port in zip(device_names(config), bound, strict=False)
            ],
        }
        for kind, replicas, bound in (
            ("account", 1, (ports.account,)),
            ("container", 1, (ports.container,)),
            ("object", config.replicas, ports.objects),
        )
    ]
    done = subprocess.run(
        [sys.executable, "-m", "swift_hapi.cluster.rings"],
        input=json.dumps(rings),
        capture_output=True,
        text=True,
        cwd=paths.dir,
    )
    if done.returncode:
        raise ClusterError(f"the rings cannot be built: {done.stderr.strip()[-2000:]}")


def plan(paths: Layout, config: ClusterConfig, ports: Ports, memcached: str) -> Plan:
    """What the supervisor is to run; it is started, and watched, by this process."""
    argvs: dict[str, list[str]] = {}
    if config.hapi:
        # First, because it takes longest.
        engine = [sys.executable, "-m", "swift_hapi.engine.main"]
        argvs["engine"] = [*engine, "--config", str(paths.etc / "engine.conf")]
    argvs["memcached"] = [memcached, "-l", "127.0.0.1", "-p", str(ports.memcached), "-U", "0"]
    if os.geteuid() == 0:
        argvs["memcached"] += ["-u", "root"]
    for name in ("account", "container", *object_servers(ports), "proxy"):
        serve = [sys.executable, "-m", "swift_hapi.cluster.serve"]
        argvs[name] = [*serve, str(paths.etc / f"{name}.conf"), name.rstrip("0123456789")]
    return Plan(
        cwd=str(paths.dir),
        starter=os.getpid(),
        state_file=str(layout.state_file(paths.dir)),
        access={
            "auth_url": f"http://{config.proxy_host}:{ports.proxy}/auth/v1.0",
            "user": config.users[0].name,
            "key": config.users[0].key,
            "dir": str(paths.dir),
            "engine_socket": str(paths.engine_socket) if config.hapi else None,
        },
        transient=tuple(map(str, paths.transient)),
        servers=tuple(
            ServerPlan(
                name=name,
                argv=tuple(argv),
                log=str(paths.log(name)),
                pid_file=str(paths.pid_file(name)),
                restart=name == "engine",
            )
            for name, argv in argvs.items()
        ),
    )
